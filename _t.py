import sys,tempfile,pathlib
from tests.batch.test_backfill import *
from tests.differential.cases import run_whole
for name in ["ss_chain"]:
    for case in cases(name)[:6]:
        topology=REBUILT[name].build(case["params"]); records=records_of(case)
        topics=topics_of(topology,REBUILT[name].outputs,1,records)
        w,s=streamed(topology,settings_of(case),topics,records)
        g,n=filled_back(topology,settings_of(case),topics,records,pathlib.Path(tempfile.mkdtemp()))
        r=run_whole(case,one_by_one=True)
        k=list(w)[0]
        a=[x[:3] for x in w[k]]; b=[x[:3] for x in g[k]]; c=r[k.topic]
        print(case["id"],case["params"],len(a),len(b),len(c),"stream==backfill",a==b,"stream==driver",a==c,"backfill==driver",b==c, sorted(map(repr,a))==sorted(map(repr,b)))
print(topology.describe())
