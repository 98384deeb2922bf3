// Writes described.txt: what Topology.describe() of Kafka Streams says of the graphs that test_names.py makes in the same way;
// and optimized.txt, the same with optimizations: java Described all > optimized.txt
// Compile and run it with kafka-streams 4.4.0 on the class path: java Described > described.txt
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.common.serialization.*;
import java.util.*;
import java.util.function.*;
import java.util.regex.Pattern;
public class Described {
  static class P extends ContextualProcessor<String,String,String,String> { public void process(org.apache.kafka.streams.processor.api.Record<String,String> x) {} }
  static class G extends ContextualProcessor<String,String,Void,Void> { public void process(org.apache.kafka.streams.processor.api.Record<String,String> x) {} }
  static class F extends ContextualFixedKeyProcessor<String,String,String> { public void process(FixedKeyRecord<String,String> x) {} }
  static StoreBuilder<?> st(String n) { return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(n), Serdes.String(), Serdes.String()); }
  static Properties props = new Properties();
  static void show(String name, Consumer<StreamsBuilder> c) {
    StreamsBuilder b = props.isEmpty() ? new StreamsBuilder() : new StreamsBuilder(new TopologyConfig(new StreamsConfig(props))); c.accept(b);
    System.out.print("===== " + name + "\n" + b.build(props).describe());
  }
  static KStream<String,String> s(StreamsBuilder b, String t) { return b.stream(t); }
  public static void main(String[] a) {
    if (a.length > 0) { props.put("application.id", "a"); props.put("bootstrap.servers", "b:1"); props.put("topology.optimization", a[0]);
      props.put("__enable.process.processValue.fix__", true); }
    show("named", b -> { KStream<String,String> s = b.stream("in", Consumed.as("read"));
      s = s.filter((k,v)->true, Named.as("f")).filterNot((k,v)->true, Named.as("fn")).mapValues(v->v, Named.as("mv")).flatMapValues(v->List.of(v), Named.as("fmv"))
       .map((k,v)->KeyValue.pair(k,v), Named.as("m")).flatMap((k,v)->List.of(KeyValue.pair(k,v)), Named.as("fm")).selectKey((k,v)->k, Named.as("sk")).peek((k,v)->{}, Named.as("p"));
      s.foreach((k,v)->{}, Named.as("fe")); s.print(Printed.<String,String>toSysOut().withName("pr")); s.merge(s(b,"other"), Named.as("mg")).to("out", Produced.as("write")); s.filter((k,v)->true).to("out2"); });
    show("unnamed", b -> { KStream<String,String> s = s(b,"in");
      s = s.filter((k,v)->true).filterNot((k,v)->true).mapValues(v->v).flatMapValues(v->List.of(v)).map((k,v)->KeyValue.pair(k,v)).flatMap((k,v)->List.of(KeyValue.pair(k,v))).selectKey((k,v)->k).peek((k,v)->{});
      s.foreach((k,v)->{}); s.print(Printed.toSysOut()); s.merge(s(b,"other")).to("out"); });
    show("split", b -> { KStream<String,String> s = s(b,"in");
      Map<String,KStream<String,String>> m = s.split().branch((k,v)->true).branch((k,v)->true, Branched.as("x")).defaultBranch();
      for (String n : new TreeSet<>(m.keySet())) m.get(n).to("out-" + n);
      s.split(Named.as("sp")).branch((k,v)->true).defaultBranch(Branched.as("rest")); s.split(Named.as("none")).branch((k,v)->true).noDefaultBranch(); });
    show("repartition", b -> { KStream<String,String> s = s(b,"in"); s.repartition().to("a"); s.repartition(Repartitioned.as("rp")).filter((k,v)->true).to("b");
      s.repartition(Repartitioned.numberOfPartitions(3)).groupByKey().count(); s.repartition(Repartitioned.as("x-repartition")).to("c"); });
    show("same topic", b -> { s(b,"in").filter((k,v)->true).to("a"); s(b,"other").to("b"); s(b,"in").mapValues(v->v).to("c"); b.<String,String>stream(List.of("p","q")).to("d"); b.<String,String>stream(List.of("p","q")).to("e"); });
    show("pattern", b -> { b.<String,String>stream(Pattern.compile("in-.*")).to("a"); b.<String,String>stream(Pattern.compile("in-.*")).filter((k,v)->true).to("b"); });
    show("process", b -> { b.addStateStore(st("one")); b.addStateStore(st("two")); KStream<String,String> s = s(b,"in");
      s.process(P::new, "one").to("a"); s.process(P::new, Named.as("work"), "one", "two").groupByKey().count(); s.processValues(F::new, "two").groupByKey().count(); s.processValues(F::new, Named.as("keep")).to("b"); s(b,"far").process(P::new); });
    show("supplied stores", b -> { s(b,"in").process(new ProcessorSupplier<String,String,String,String>() { public Processor<String,String,String,String> get() { return new P(); } public Set<StoreBuilder<?>> stores() { return Set.of(st("own")); } }).to("a"); });
    show("group twice", b -> { KGroupedStream<String,String> g = s(b,"in").selectKey((k,v)->v).groupByKey(); g.count(); g.count(Materialized.as("cs")); });
    show("group twice by name", b -> { KGroupedStream<String,String> g = s(b,"in").selectKey((k,v)->v).groupByKey(Grouped.as("grp")); g.count(); g.count(Materialized.as("cs")); s(b,"late").to("x"); });
    show("group by", b -> { KStream<String,String> s = s(b,"in"); s.groupBy((k,v)->v).count(); s.groupBy((k,v)->v, Grouped.as("grp")).reduce((x,y)->x); });
    show("join twice", b -> { KTable<String,String> t = b.table("t"), u = b.table("u"); KStream<String,String> s = s(b,"in").selectKey((k,v)->v); s.join(t,(x,y)->x).to("a"); s.leftJoin(u,(x,y)->x).to("b");
      s.join(t,(x,y)->x,Joined.as("named")).to("c"); });
    show("to table", b -> { KStream<String,String> s = s(b,"in"); s.toTable().toStream().to("a"); s.selectKey((k,v)->v).toTable(Named.as("tab")).toStream().to("b"); s.selectKey((k,v)->v).toTable(Materialized.as("st")).toStream().to("c"); });
    show("global tables", b -> { GlobalKTable<String,String> g = b.globalTable("g", Materialized.as("gs")); b.globalTable("h", Consumed.as("hh"));
      b.addGlobalStore(st("raw"), "topic", Consumed.<String,String>with(Serdes.String(),Serdes.String()), G::new); KStream<String,String> s = s(b,"in"); s.map((k,v)->KeyValue.pair(k,v)).join(g,(k,v)->v,(x,y)->x).groupByKey().count(); s.leftJoin(g,(k,v)->v,(x,y)->x,Named.as("lj")).to("a"); });
    show("merge rekeyed", b -> { KStream<String,String> s = s(b,"in"), o = s(b,"other"); s.merge(o.selectKey((k,v)->v)).groupByKey().count(); o.merge(s).groupByKey().count(); s.merge(s).to("a"); });
    show("split rekeyed", b -> { Map<String,KStream<String,String>> m = s(b,"in").map((k,v)->KeyValue.pair(v,k)).split(Named.as("s-")).branch((k,v)->true,Branched.as("a")).defaultBranch(Branched.as("b")); m.get("s-a").groupByKey().count(); m.get("s-b").mapValues(v->v).to("x"); });
    show("self joins", b -> { JoinWindows w = JoinWindows.ofTimeDifferenceWithNoGrace(java.time.Duration.ofMillis(5)); KStream<String,String> s = s(b,"in"), r = s(b,"other").selectKey((k,v)->v);
      s.join(s,(x,y)->x,w).to("a"); s.leftJoin(s,(x,y)->x,w,StreamJoined.<String,String,String>as("st").withName("named")).to("b"); r.outerJoin(r,(x,y)->x,w).to("c"); s.join(r,(x,y)->x,w).to("d"); s.join(s.filter((k,v)->true),(x,y)->x,w).to("e"); });
    show("one repartition", b -> { KTable<String,String> t = b.table("t"); KStream<String,String> s = s(b,"in").map((k,v)->KeyValue.pair(v,k)); KStream<String,String> f = s.filter((k,v)->true).peek((k,v)->{});
      f.groupByKey().count().toStream().to("a"); s.groupByKey(Grouped.as("grp")).reduce((x,y)->x); s.mapValues(v->v).groupByKey().count(); s.leftJoin(t,(x,y)->x).to("b"); s.toTable(Materialized.as("tab")); s.flatMapValues(v->List.of(v)).to("c"); s.repartition().to("d"); });
    show("one repartition behind merges", b -> { KStream<String,String> s = s(b,"in").selectKey((k,v)->v), o = s(b,"other").selectKey((k,v)->v).filter((k,v)->true); KStream<String,String> m = s.merge(o);
      m.groupByKey().count(); m.filter((k,v)->true).groupByKey(Grouped.as("grp")).reduce((x,y)->x); s(b,"far").merge(s(b,"near").map((k,v)->KeyValue.pair(v,k))).groupByKey().count(); });
    show("sessions", b -> { SessionWindows w = SessionWindows.ofInactivityGapWithNoGrace(java.time.Duration.ofMillis(5)); KGroupedStream<String,String> g = s(b,"in").groupByKey(), h = s(b,"other").selectKey((k,v)->v).groupByKey();
      g.windowedBy(w).count().suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream((k,v)->k.key()).to("a"); g.windowedBy(w).count(Named.as("named")); g.windowedBy(w).count(Materialized.with(Serdes.String(), Serdes.Long()));
      g.windowedBy(w).reduce((x,y)->x); h.windowedBy(w).reduce((x,y)->x, Materialized.as("rs")); h.windowedBy(w).emitStrategy(EmitStrategy.onWindowClose()).aggregate(() -> "", (k,v,x)->x, (k,x,y)->x);
      g.<String>cogroup((k,v,x)->x).cogroup(h, (k,v,x)->x).windowedBy(w).aggregate(() -> "", (k,x,y)->x); g.<String>cogroup((k,v,x)->x).windowedBy(w).aggregate(() -> "", (k,x,y)->x, Named.as("cg"), Materialized.as("cgs")); });
    show("foreign keys", b -> { KTable<String,String> l = b.table("l"), r = b.table("r", Materialized.as("rs")), e = b.table("e"); Function<String,String> f = v -> v;
      l.join(r, f, (x,y)->x).toStream().to("a"); l.leftJoin(r, f, (x,y)->x, TableJoined.as("named"), Materialized.as("st")).toStream().to("b"); e.leftJoin(e, (k,v)->v, (x,y)->x, TableJoined.as("self")).groupBy((k,v)->KeyValue.pair(v,k)).count();
      s(b,"in").selectKey((k,v)->v).toTable().filter((k,v)->true).join(s(b,"other").groupByKey().count(), f, (x,y)->x).mapValues(v->v).join(l, f, (x,y)->x).join(r, (x,y)->x, Materialized.as("both")); });
  }
}
