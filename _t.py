import sys,tempfile,pathlib
from tests.batch.test_backfill import *
for name in REBUILT:
    if name in WITH_CLOCK: continue
    for case in cases(name)[:3]:
        topology=REBUILT[name].build(case["params"]); records=records_of(case)
        topics=topics_of(topology,REBUILT[name].outputs,1,records)
        w,s=streamed(topology,settings_of(case),topics,records)
        try: g,n=filled_back(topology,settings_of(case),topics,records,pathlib.Path(tempfile.mkdtemp()))
        except Exception as e: print(name,"ERR",repr(e)[:300]); break
        if g!=w: print(name,case["id"],"SINKS")
        s=what_is_left(topology,s)
        if s!=n:
            for k in sorted(set(s)|set(n)):
                a,b=s.get(k,{}),n.get(k,{})
                if a!=b:
                    miss={x for x in a if x not in b}; more={x for x in b if x not in a}; diff={x:(a[x],b[x]) for x in a if x in b and a[x]!=b[x]}
                    print(name,case["id"],case["params"],k,"missing",len(miss),"more",len(more),"diff",len(diff),list(diff.items())[:1],list(miss)[:1],list(more)[:1])
            break
