package oracle;

// Every topology by its name; tests/differential/*_topologies.py builds the same ones with the DSL of ks_actors.
import static oracle.Parts.*;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.state.*;

final class Topologies {
  interface Build { Topology build(StreamsBuilder b, JsonNode p, Properties props); }
  interface Dsl { void build(StreamsBuilder b, JsonNode p); }
  record Topo(List<String> outs, Build build) {}

  static final Map<String, Topo> ALL = new LinkedHashMap<>();

  private Topologies() {}

  private static void dsl(String name, String outs, Dsl d) {
    ALL.put(name, new Topo(List.of(outs.split(" ")), (b, p, props) -> { d.build(b, p); return b.build(props); }));
  }

  static {
    dsl("stateless_chain", "out", (b, p) -> b.stream("in", cons())
        .filter((k, v) -> v != null && !v.equals("x"))
        .filterNot((k, v) -> "k2".equals(k) && v.equals("a"))
        .mapValues((k, v) -> (k == null ? "_" : k) + v)
        .flatMapValues(v -> v.endsWith("d") ? List.<String>of() : v.endsWith("e") ? List.of(v, v + "2") : List.of(v))
        .flatMap((k, v) -> { List<KeyValue<String, String>> r = new ArrayList<>(); r.add(KeyValue.pair(k, v)); if (k != null) r.add(KeyValue.pair(v, k)); return r; })
        .peek((k, v) -> { })
        .map((k, v) -> KeyValue.pair(k, v + "."))
        .to("out", prod()));

    dsl("branch_merge", "out-lo out-k out-rest out-merged", (b, p) -> {
      BranchedKStream<String, String> br = b.stream("in", cons()).split(Named.as("br-"))
          .branch((k, v) -> v != null && v.compareTo("c") < 0, Branched.as("lo"))
          .branch((k, v) -> "k1".equals(k), Branched.as("k"));
      Map<String, KStream<String, String>> m = on(p, "default") ? br.defaultBranch(Branched.as("rest")) : br.noDefaultBranch();
      m.get("br-lo").to("out-lo", prod());
      m.get("br-k").to("out-k", prod());
      KStream<String, String> merged = m.get("br-lo").mapValues(v -> "L" + v).merge(m.get("br-k").mapValues(v -> "K" + v));
      if (on(p, "default")) {
        m.get("br-rest").to("out-rest", prod());
        merged = merged.merge(m.get("br-rest").map((k, v) -> KeyValue.pair(v, k)));
      }
      merged.to("out-merged", prod());
    });

    dsl("merge_count", "out out-count", (b, p) -> {
      KStream<String, String> s = b.stream(List.of("a", "b"), cons()).merge(b.stream("c", cons()).mapValues(v -> v == null ? null : "c" + v));
      s.to("out", prod());
      outK(s.groupByKey(grouped()).count(kv("cnt", L)), "out-count");
    });

    dsl("selectkey_count", "out", (b, p) -> outK(b.stream("in", cons())
        .selectKey((k, v) -> first(v)).groupByKey(Grouped.with("grp", S, S)).count(kv("cnt", L)), "out"));

    dsl("repartition_reduce", "out-mid out", (b, p) -> {
      KStream<String, String> r = b.stream("in", cons()).map((k, v) -> KeyValue.pair(v, k))
          .repartition(Repartitioned.<String, String>as("rp").withKeySerde(S).withValueSerde(S).withNumberOfPartitions(1));
      r.to("out-mid", prod());
      outK(r.groupByKey(grouped()).reduce((a, v) -> a + v, kv("red", S)), "out");
    });

    dsl("stream_count", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).count(kv("cnt", L)), "out"));
    dsl("stream_reduce", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).reduce(REDUCE, kv("red", S)), "out"));
    dsl("stream_aggregate", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).aggregate(ZERO, AGG, kv("agg", S)), "out"));
    dsl("groupby_aggregate", "out", (b, p) -> outK(b.stream("in", cons()).groupBy((k, v) -> "n".equals(v) ? null : first(v), grouped())
        .aggregate(ZERO, (k, v, a) -> a + "[" + k + v + "]", kv("agg", S)), "out"));
    dsl("aggregate_filter_table", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).count(kv("cnt", L))
        .filter((k, c) -> c % 3 != 0).mapValues(c -> "c" + c), "out"));

    dsl("table_source", "out", (b, p) -> {
      KTable<String, String> t = on(p, "mat") ? table(b, "in") : b.table("in", cons());
      t.toStream((k, v) -> k + "/" + v).to("out", prod());
    });
    dsl("table_filter_map", "out", (b, p) -> {
      KTable<String, String> t = table(b, "in");
      Predicate<String, String> keep = (k, v) -> v.compareTo("c") < 0;
      KTable<String, String> f = on(p, "not") ? (on(p, "mat_filter") ? t.filterNot(keep, kv("flt", S)) : t.filterNot(keep))
          : (on(p, "mat_filter") ? t.filter(keep, kv("flt", S)) : t.filter(keep));
      ValueMapperWithKey<String, String, String> mv = (k, v) -> v.equals("b") ? null : k + v;
      outK(on(p, "mat_map") ? f.mapValues(mv, kv("map", S)) : f.mapValues(mv), "out");
    });
    dsl("table_chain_groupby", "out", (b, p) -> outK(table(b, "in").filter((k, v) -> !v.startsWith("d")).mapValues(v -> v.equals("b") ? null : v + v)
        .groupBy((k, v) -> KeyValue.pair(first(v), k), grouped()).count(kv("cnt", L)), "out"));
    dsl("table_transform", "out", (b, p) -> {
      StoreBuilder<KeyValueStore<String, String>> sb = kvStore("versions", p);
      b.addStateStore(sb);
      KTable<String, String> t = table(b, "in");
      outK(on(p, "mat") ? t.transformValues(Processors.Versions::new, kv("tv", S), "versions") : t.transformValues(Processors.Versions::new, "versions"), "out");
    });
    KeyValueMapper<String, String, KeyValue<String, String>> regroup = (k, v) ->
        v.startsWith("N") ? null : v.startsWith("n") ? KeyValue.pair(null, v) : v.startsWith("m") ? KeyValue.pair("m", null) : KeyValue.pair(first(v), rest(v));
    dsl("table_groupby_count", "out", (b, p) -> outK(table(b, "in").groupBy(regroup, grouped()).count(kv("cnt", L)), "out"));
    dsl("table_groupby_reduce", "out", (b, p) -> outK(table(b, "in").groupBy(regroup, grouped())
        .reduce((a, v) -> a + "+" + v, (a, v) -> v.equals("2") ? null : a + "-" + v, kv("red", S)), "out"));
    dsl("table_groupby_aggregate", "out", (b, p) -> outK(table(b, "in").groupBy(regroup, grouped())
        .aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> v.equals("2") ? null : a + "-" + v, kv("agg", S)), "out"));
    dsl("table_samekey_aggregate", "out", (b, p) -> outK(table(b, "in").groupBy((k, v) -> KeyValue.pair(k, v), grouped())
        .aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg", S)), "out"));
    dsl("to_table", "out", (b, p) -> {
      KStream<String, String> s = b.stream("in", cons()).filterNot((k, v) -> "x".equals(v)).mapValues(v -> v == null ? null : v + "!");
      outK(on(p, "mat") ? s.toTable(kv("tt", S)) : s.toTable(), "out");
    });
    dsl("to_table_repartition", "out", (b, p) -> {
      KTable<String, String> t = b.stream("in", cons()).selectKey((k, v) -> v == null ? k : first(v)).toTable(kv("tt", S));
      outK(t.filter((k, v) -> !v.endsWith("2")), "out");
    });

    dsl("tumbling", "out", (b, p) -> outW(aggTime(b.stream("in", cons()).groupByKey(grouped()).windowedBy(time(p)).emitStrategy(emit(p)), p), "out"));
    dsl("hopping", "out", (b, p) -> outW(aggTime(b.stream("in", cons()).groupByKey(grouped()).windowedBy(time(p)).emitStrategy(emit(p)), p), "out"));
    dsl("sliding", "out", (b, p) -> outW(aggTime(b.stream("in", cons()).groupByKey(grouped()).windowedBy(sliding(p)).emitStrategy(emit(p)), p), "out"));
    dsl("session", "out", (b, p) -> outW(aggSession(b.stream("in", cons()).groupByKey(grouped()).windowedBy(session(p)).emitStrategy(emit(p)), p), "out"));
    dsl("unlimited_count", "out", (b, p) -> outW(b.stream("in", cons()).groupByKey(grouped())
        .windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(p.get("start").asLong()))).count(win("agg", L, p)), "out"));
    dsl("window_filter_table", "out", (b, p) -> outW(b.stream("in", cons()).groupByKey(grouped()).windowedBy(time(p)).count(win("agg", L, p))
        .filter((k, c) -> c % 2 == 1).mapValues(c -> "c" + c), "out"));
    dsl("window_regroup", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).windowedBy(time(p)).count(win("agg", L, p)).mapValues(v -> nz(v))
        .groupBy((w, c) -> KeyValue.pair(String.valueOf(w.window().start()), w.key() + c), grouped())
        .aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg2", S)), "out"));
    dsl("session_regroup", "out", (b, p) -> outK(b.stream("in", cons()).groupByKey(grouped()).windowedBy(session(p)).count(ses("agg", L, p)).mapValues(v -> nz(v))
        .groupBy((w, c) -> KeyValue.pair(String.valueOf(w.window().start()), w.key() + c), grouped())
        .aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg2", S)), "out"));

    Aggregator<String, String, String> ca = (k, v, a) -> v == null ? a + "A~" : v.equals("z") ? null : a + "A" + v;
    Aggregator<String, String, String> cb = (k, v, a) -> v == null ? a + "B~" : a + "B" + v;
    dsl("cogroup", "out", (b, p) -> outK(b.stream("a", cons()).groupByKey(grouped()).cogroup(ca)
        .cogroup(b.stream("b", cons()).groupByKey(grouped()), cb).aggregate(ZERO, kv("cg", S)), "out"));
    dsl("cogroup_windowed", "out", (b, p) -> {
      CogroupedKStream<String, String> c = b.stream("a", cons()).groupByKey(grouped()).cogroup(ca).cogroup(b.stream("b", cons()).groupByKey(grouped()), cb);
      switch (str(p, "window", "time")) {
        case "sliding" -> outW(c.windowedBy(sliding(p)).aggregate(ZERO, win("cg", S, p)), "out");
        case "session" -> outW(c.windowedBy(session(p)).aggregate(ZERO, MERGE, ses("cg", S, p)), "out");
        default -> outW(c.windowedBy(time(p)).aggregate(ZERO, win("cg", S, p)), "out");
      }
    });

    dsl("ss_inner", "out", (b, p) -> b.stream("left", cons()).join(b.stream("right", cons()), JOIN, join(p), sj()).to("out", prod()));
    dsl("ss_left", "out", (b, p) -> b.stream("left", cons()).leftJoin(b.stream("right", cons()), JOIN, join(p), sj()).to("out", prod()));
    dsl("ss_outer", "out", (b, p) -> b.stream("left", cons()).outerJoin(b.stream("right", cons()), JOIN, join(p), sj()).to("out", prod()));
    dsl("ss_self", "out", (b, p) -> { KStream<String, String> s = b.stream("in", cons()); s.join(s, JOIN, join(p), sj()).to("out", prod()); });
    dsl("ss_inner_repartition", "out", (b, p) -> b.stream("left", cons()).selectKey((k, v) -> first(v))
        .join(b.stream("right", cons()).selectKey((k, v) -> first(v)), JOIN, join(p), sj()).to("out", prod()));
    dsl("ss_left_repartition", "out", (b, p) -> b.stream("left", cons()).selectKey((k, v) -> first(v))
        .leftJoin(b.stream("right", cons()).selectKey((k, v) -> first(v)), JOIN, join(p), sj()).to("out", prod()));
    dsl("ss_join_window", "out", (b, p) -> outW(b.stream("left", cons()).join(b.stream("right", cons()), JOIN, join(p), sj())
        .groupByKey(grouped()).windowedBy(time(p)).aggregate(ZERO, AGG, win("agg", S, p)), "out"));
    dsl("ss_chain", "out", (b, p) -> b.stream("left", cons()).leftJoin(b.stream("right", cons()), JOIN, join(p), sj())
        .outerJoin(b.stream("third", cons()), JOIN, join(p), sj()).to("out", prod()));

    dsl("st_inner", "out", (b, p) -> b.stream("left", cons()).join(table(b, "right"), JOIN, Joined.with(S, S, S)).to("out", prod()));
    dsl("st_left", "out", (b, p) -> b.stream("left", cons()).leftJoin(table(b, "right"), JOIN, Joined.with(S, S, S)).to("out", prod()));
    dsl("st_left_aggtable", "out out-table", (b, p) -> {
      KTable<String, String> t = b.stream("right", cons()).groupByKey(grouped()).aggregate(ZERO, AGG, kv("agg", S)).filter((k, v) -> v.length() < 5);
      outK(t, "out-table");
      b.stream("left", cons()).leftJoin(t, JOIN, Joined.with(S, S, S)).to("out", prod());
    });
    dsl("st_left_repartition", "out", (b, p) -> b.stream("left", cons()).selectKey((k, v) -> first(v)).leftJoin(table(b, "right"), JOIN, Joined.with(S, S, S)).to("out", prod()));
    dsl("sg_inner", "out", (b, p) -> b.stream("left", cons()).join(b.globalTable("right", cons(), kv("right-store", S)), (k, v) -> v == null || v.equals("n") ? null : v, J2).to("out", prod()));
    dsl("sg_left", "out", (b, p) -> b.stream("left", cons()).leftJoin(b.globalTable("right", cons(), kv("right-store", S)), (k, v) -> v == null || v.equals("n") ? null : v, J2).to("out", prod()));

    dsl("tt_inner", "out", (b, p) -> outK(on(p, "mat") ? table(b, "left").join(table(b, "right"), J2, kv("jn", S)) : table(b, "left").join(table(b, "right"), J2), "out"));
    dsl("tt_left", "out", (b, p) -> outK(on(p, "mat") ? table(b, "left").leftJoin(table(b, "right"), J2, kv("jn", S)) : table(b, "left").leftJoin(table(b, "right"), J2), "out"));
    dsl("tt_outer", "out", (b, p) -> outK(on(p, "mat") ? table(b, "left").outerJoin(table(b, "right"), J2, kv("jn", S)) : table(b, "left").outerJoin(table(b, "right"), J2), "out"));
    dsl("tt_chain", "out", (b, p) -> outK(table(b, "left").outerJoin(table(b, "right"), J2).leftJoin(table(b, "third"), J2), "out"));
    dsl("tt_diamond", "out", (b, p) -> { KTable<String, String> t = table(b, "in"); outK(t.outerJoin(t.filter((k, v) -> v.compareTo("c") < 0), J2), "out"); });
    dsl("tt_join_groupby", "out", (b, p) -> outK(table(b, "left").leftJoin(table(b, "right"), J2)
        .groupBy((k, v) -> KeyValue.pair(first(v), v), grouped()).aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "_" + v, kv("agg", S)), "out"));

    Function<String, String> fk = v -> v.startsWith("null|") ? null : v.substring(0, v.indexOf('|'));
    dsl("fk_inner", "out", (b, p) -> outK(on(p, "mat") ? table(b, "left").join(table(b, "right"), fk, J2, kv("jn", S)) : table(b, "left").join(table(b, "right"), fk, J2), "out"));
    dsl("fk_left", "out", (b, p) -> outK(on(p, "mat") ? table(b, "left").leftJoin(table(b, "right"), fk, J2, kv("jn", S)) : table(b, "left").leftJoin(table(b, "right"), fk, J2), "out"));
    dsl("fk_left_groupby", "out", (b, p) -> outK(table(b, "left").leftJoin(table(b, "right"), fk, J2)
        .groupBy((k, v) -> KeyValue.pair(v.substring(v.indexOf('-') + 1), k), grouped()).count(kv("cnt", L)), "out"));

    dsl("suppress_window", "out-raw out-suppressed", (b, p) -> {
      KTable<Windowed<String>, String> t = aggTime(b.stream("in", cons()).groupByKey(grouped()).windowedBy(time(p)), p);
      outW(t.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())), "out-suppressed");
      outW(t, "out-raw");
    });
    dsl("suppress_session", "out-raw out-suppressed", (b, p) -> {
      KTable<Windowed<String>, String> t = aggSession(b.stream("in", cons()).groupByKey(grouped()).windowedBy(session(p)), p);
      outW(t.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())), "out-suppressed");
      outW(t, "out-raw");
    });
    dsl("suppress_limit", "out-raw out-suppressed", (b, p) -> {
      KTable<String, String> t = str(p, "source", "table").equals("count")
          ? table(b, "in").groupBy((k, v) -> KeyValue.pair(first(v), v), grouped()).count(kv("cnt", L)).mapValues(v -> nz(v), kv("cs", S))
          : table(b, "in");
      Suppressed.EagerBufferConfig cfg = has(p, "max_records") ? Suppressed.BufferConfig.maxRecords(p.get("max_records").asLong()).emitEarlyWhenFull() : null;
      outK(cfg == null ? t.suppress(Suppressed.untilTimeLimit(ms(p, "limit"), Suppressed.BufferConfig.unbounded()))
          : t.suppress(Suppressed.untilTimeLimit(ms(p, "limit"), cfg)), "out-suppressed");
      outK(t, "out-raw");
    });
    dsl("suppress_limit_groupby", "out", (b, p) -> outK(table(b, "in").suppress(Suppressed.untilTimeLimit(ms(p, "limit"), Suppressed.BufferConfig.unbounded()))
        .groupBy((k, v) -> KeyValue.pair(first(v), v), grouped()).aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg", S)), "out"));

    dsl("versioned_st_inner", "out", (b, p) -> b.stream("left", cons()).join(versioned(b, "right", ms(p, "history")), JOIN, joinedGrace(p)).to("out", prod()));
    dsl("versioned_st_left", "out", (b, p) -> b.stream("left", cons()).leftJoin(versioned(b, "right", ms(p, "history")), JOIN, joinedGrace(p)).to("out", prod()));
    dsl("versioned_tt_inner", "out", (b, p) -> outK(maybeVersioned(b, "left", p, "history_left").join(maybeVersioned(b, "right", p, "history_right"), J2, kv("jn", S)), "out"));
    dsl("versioned_tt_left", "out", (b, p) -> outK(maybeVersioned(b, "left", p, "history_left").leftJoin(maybeVersioned(b, "right", p, "history_right"), J2, kv("jn", S)), "out"));
    dsl("versioned_tt_outer", "out", (b, p) -> outK(maybeVersioned(b, "left", p, "history_left").outerJoin(maybeVersioned(b, "right", p, "history_right"), J2, kv("jn", S)), "out"));
    dsl("versioned_filter", "out", (b, p) -> outK(versioned(b, "in", ms(p, "history")).filter((k, v) -> v.compareTo("c") < 0).mapValues((k, v) -> k + v), "out"));
    dsl("versioned_groupby", "out", (b, p) -> outK(versioned(b, "in", ms(p, "history")).groupBy((k, v) -> KeyValue.pair(first(v), rest(v)), grouped())
        .aggregate(ZERO, (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg", S)), "out"));

    dsl("multi_subtopology", "out-count out", (b, p) -> {
      KTable<String, Long> c = b.stream("in", cons()).selectKey((k, v) -> first(v)).groupByKey(Grouped.with("g1", S, S)).count(kv("c1", L));
      outK(c, "out-count");
      outK(c.toStream().map((k, v) -> KeyValue.pair("n" + v, k)).groupByKey(Grouped.with("g2", S, S)).aggregate(ZERO, AGG, kv("c2", S)), "out");
    });

    dsl("punctuate_stream", "out", (b, p) -> {
      b.addStateStore(kvStore("counts", p));
      b.stream("in", cons()).process(() -> new Processors.Counter(p.get("interval").asLong(), PunctuationType.STREAM_TIME, on(p, "clear"), has(p, "start") ? p.get("start").asLong() : -1), "counts").to("out", prod());
    });
    dsl("punctuate_wall", "out", (b, p) -> {
      b.addStateStore(kvStore("counts", p));
      b.stream("in", cons()).process(() -> new Processors.Counter(p.get("interval").asLong(), PunctuationType.WALL_CLOCK_TIME, on(p, "clear"), has(p, "start") ? p.get("start").asLong() : -1), "counts").to("out", prod());
    });
    dsl("dedup", "out", (b, p) -> {
      WindowBytesStoreSupplier sup = rocks(p) ? Stores.persistentWindowStore("seen", ms(p, "retention"), ms(p, "window"), false)
          : Stores.inMemoryWindowStore("seen", ms(p, "retention"), ms(p, "window"), false);
      b.addStateStore(Stores.windowStoreBuilder(sup, S, S).withCachingDisabled());
      b.stream("in", cons()).process(() -> new Processors.Dedup(p.get("window").asLong()), "seen").to("out", prod());
    });
    dsl("process_values", "out out-count", (b, p) -> {
      b.addStateStore(kvStore("last", p));
      KStream<String, String> s = b.stream("in", cons()).processValues(Processors.Last::new, "last");
      s.to("out", prod());
      outW(s.groupByKey(grouped()).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(20), Duration.ofMillis(20))).count(win("cnt", L, p)), "out-count");
    });
    ALL.put("papi_router", new Topo(List.of("out-low", "out-high", "out-all"), (b, p, props) -> new Topology()
        .addSource("src", S.deserializer(), S.deserializer(), "in")
        .addProcessor("router", Processors.Router::new, "src")
        .addProcessor("low", () -> new Processors.Tally("l"), "router")
        .addProcessor("high", () -> new Processors.Tally("h"), "router")
        .addStateStore(kvStore("shared", p), "low", "high")
        .addSink("sink-low", "out-low", S.serializer(), S.serializer(), "low")
        .addSink("sink-high", "out-high", S.serializer(), S.serializer(), "high")
        .addSink("sink-all", "out-all", S.serializer(), S.serializer(), "low", "high")));
  }
}
