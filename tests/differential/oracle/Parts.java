package oracle;

// What the topologies are made of: parameters of a case, functions, stores, windows.
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

final class Parts {
  static final Serde<String> S = Serdes.String();
  static final Serde<Long> L = Serdes.Long();

  private Parts() {}

  // ---- parameter and value helpers -------------------------------------------------------------
  static Duration ms(JsonNode p, String f) { return Duration.ofMillis(p.get(f).asLong()); }
  static boolean has(JsonNode p, String f) { return p.hasNonNull(f); }
  static boolean on(JsonNode p, String f) { return has(p, f) && p.get(f).asBoolean(); }
  static String str(JsonNode p, String f, String dflt) { return has(p, f) ? p.get(f).asText() : dflt; }
  static boolean rocks(JsonNode p) { return str(p, "store", "in_memory").equals("rocksdb"); }
  static String nz(Object o) { return o == null ? null : o.toString(); }
  static String tilde(String v) { return v == null ? "~" : v; }
  static String first(String v) { return v == null || v.isEmpty() ? null : v.substring(0, 1); }
  static String rest(String v) { return v.substring(1); }
  static <X> String wkey(Windowed<X> w) { return w.key() + "@" + w.window().start() + "/" + w.window().end(); }

  // ---- functions -------------------------------------------------
  static final Reducer<String> REDUCE = (a, v) -> v == null ? a + "~" : v.equals("z") ? null : a + v;
  static final Initializer<String> ZERO = () -> "0";
  static final Aggregator<String, String, String> AGG = (k, v, a) -> v == null ? a + "~" : v.equals("z") ? null : a + v;
  static final Merger<String, String> MERGE = (k, a, b) -> a + "&" + b;
  static final ValueJoinerWithKey<String, String, String, String> JOIN = (k, l, r) -> l + "-" + r;
  static final ValueJoiner<String, String, String> J2 = (l, r) -> l + "-" + r;

  static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> kv(String n, Serde<V> v) {
    return Materialized.<String, V, KeyValueStore<Bytes, byte[]>>as(n).withKeySerde(S).withValueSerde(v);
  }
  static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> win(String n, Serde<V> v, JsonNode p) {
    Materialized<String, V, WindowStore<Bytes, byte[]>> m =
        Materialized.<String, V, WindowStore<Bytes, byte[]>>as(n).withKeySerde(S).withValueSerde(v);
    return has(p, "retention") ? m.withRetention(ms(p, "retention")) : m;
  }
  static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> ses(String n, Serde<V> v, JsonNode p) {
    Materialized<String, V, SessionStore<Bytes, byte[]>> m =
        Materialized.<String, V, SessionStore<Bytes, byte[]>>as(n).withKeySerde(S).withValueSerde(v);
    return has(p, "retention") ? m.withRetention(ms(p, "retention")) : m;
  }
  static EmitStrategy emit(JsonNode p) {
    return str(p, "emit", "update").equals("close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
  }
  static TimeWindows time(JsonNode p) {
    TimeWindows w = TimeWindows.ofSizeAndGrace(ms(p, "size"), ms(p, "grace"));
    return has(p, "advance") ? w.advanceBy(ms(p, "advance")) : w;
  }
  static SlidingWindows sliding(JsonNode p) { return SlidingWindows.ofTimeDifferenceAndGrace(ms(p, "diff"), ms(p, "grace")); }
  static SessionWindows session(JsonNode p) { return SessionWindows.ofInactivityGapAndGrace(ms(p, "gap"), ms(p, "grace")); }
  static JoinWindows join(JsonNode p) {
    long b = p.get("before").asLong(), a = p.get("after").asLong();
    return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(Math.max(Math.abs(a), Math.abs(b))), ms(p, "grace"))
        .after(Duration.ofMillis(a)).before(Duration.ofMillis(b));
  }
  static StreamJoined<String, String, String> sj() { return StreamJoined.with(S, S, S); }
  static Grouped<String, String> grouped() { return Grouped.with(S, S); }
  static Consumed<String, String> cons() { return Consumed.with(S, S); }
  static Produced<String, String> prod() { return Produced.with(S, S); }
  static <V> void outK(KTable<String, V> t, String topic) { t.toStream().mapValues(v -> nz(v)).to(topic, prod()); }
  static <V> void outW(KTable<Windowed<String>, V> t, String topic) {
    t.toStream((w, v) -> wkey(w)).mapValues(v -> nz(v)).to(topic, prod());
  }
  static KTable<String, String> table(StreamsBuilder b, String topic) { return b.table(topic, cons(), kv(topic + "-store", S)); }
  static KTable<String, String> versioned(StreamsBuilder b, String topic, Duration history) {
    return b.table(topic, cons(), Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore(topic + "-store", history)).withKeySerde(S).withValueSerde(S));
  }
  static KTable<String, String> maybeVersioned(StreamsBuilder b, String topic, JsonNode p, String f) {
    return has(p, f) ? versioned(b, topic, ms(p, f)) : table(b, topic);
  }
  static StoreBuilder<KeyValueStore<String, String>> kvStore(String n, JsonNode p) {
    return Stores.keyValueStoreBuilder(rocks(p) ? Stores.persistentKeyValueStore(n) : Stores.inMemoryKeyValueStore(n), S, S).withCachingDisabled();
  }
  static KTable<Windowed<String>, String> aggTime(TimeWindowedKStream<String, String> w, JsonNode p) {
    return switch (str(p, "op", "aggregate")) {
      case "count" -> w.count(win("agg", L, p)).mapValues(v -> nz(v));
      case "reduce" -> w.reduce(REDUCE, win("agg", S, p));
      default -> w.aggregate(ZERO, AGG, win("agg", S, p));
    };
  }
  static KTable<Windowed<String>, String> aggSession(SessionWindowedKStream<String, String> w, JsonNode p) {
    return switch (str(p, "op", "aggregate")) {
      case "count" -> w.count(ses("agg", L, p)).mapValues(v -> nz(v));
      case "reduce" -> w.reduce(REDUCE, ses("agg", S, p));
      default -> w.aggregate(ZERO, AGG, MERGE, ses("agg", S, p));
    };
  }
  static Joined<String, String, String> joinedGrace(JsonNode p) {
    Joined<String, String, String> j = Joined.with(S, S, S);
    return has(p, "grace") ? j.withGracePeriod(ms(p, "grace")) : j;
  }
}
