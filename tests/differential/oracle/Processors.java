package oracle;

// The user code of the topologies that use the Processor API.
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

final class Processors {
  private Processors() {}

  static class Dedup extends ContextualProcessor<String, String, String, String> {
    final long w; WindowStore<String, String> store;
    Dedup(long w) { this.w = w; }
    public void init(ProcessorContext<String, String> c) { super.init(c); store = c.getStateStore("seen"); }
    public void process(Record<String, String> r) {
      if (r.key() == null) return;
      String id = r.key() + "|" + Parts.tilde(r.value());
      boolean dup = false;
      try (WindowStoreIterator<String> it = store.fetch(id, Math.max(0, r.timestamp() - w), r.timestamp() + w)) { dup = it.hasNext(); }
      store.put(id, "1", r.timestamp());
      if (!dup) context().forward(r);
    }
  }
  static class Last extends ContextualFixedKeyProcessor<String, String, String> {
    KeyValueStore<String, String> store;
    public void init(FixedKeyProcessorContext<String, String> c) { super.init(c); store = c.getStateStore("last"); }
    public void process(FixedKeyRecord<String, String> r) {
      String k = r.key() == null ? "_" : r.key();
      String prev = store.get(k);
      if (r.value() == null) { store.delete(k); context().forward(r.withValue("del:" + prev)); return; }
      if (r.value().equals(prev)) return;
      store.put(k, r.value());
      context().forward(r.withValue(prev + ">" + r.value()));
      if (r.value().startsWith("d")) context().forward(r.withValue("again:" + r.value()).withTimestamp(r.timestamp() + 1));
    }
  }
  static class Counter extends ContextualProcessor<String, String, String, String> {
    final long interval; final PunctuationType type; final boolean clear; final long start;
    KeyValueStore<String, String> store;
    Counter(long interval, PunctuationType type, boolean clear, long start) { this.interval = interval; this.type = type; this.clear = clear; this.start = start; }
    public void init(ProcessorContext<String, String> c) {
      super.init(c); store = c.getStateStore("counts");
      if (start >= 0) c.schedule(Instant.ofEpochMilli(start), Duration.ofMillis(interval), type, this::fire);
      else c.schedule(Duration.ofMillis(interval), type, this::fire);
    }
    void fire(long ts) {
      context().forward(new Record<>("tick", ts + "/" + context().currentStreamTimeMs(), Math.max(0, ts)));
      List<String> keys = new ArrayList<>();
      try (KeyValueIterator<String, String> it = store.all()) {
        while (it.hasNext()) { KeyValue<String, String> e = it.next(); keys.add(e.key); context().forward(new Record<>(e.key, e.value, Math.max(0, ts))); }
      }
      if (clear) for (String k : keys) store.delete(k);
    }
    public void process(Record<String, String> r) {
      if (r.key() == null) return;
      if (r.value() == null) { store.delete(r.key()); return; }
      String old = store.get(r.key());
      store.put(r.key(), String.valueOf(old == null ? 1 : Long.parseLong(old) + 1));
    }
  }
  static class Router extends ContextualProcessor<String, String, String, String> {
    public void process(Record<String, String> r) {
      if (r.value() == null) { context().forward(r.withValue("null")); return; }          // every child
      if (r.value().compareTo("c") < 0) context().forward(r, "low");
      else context().forward(r.withTimestamp(r.timestamp() + 5), "high");
    }
  }
  static class Tally extends ContextualProcessor<String, String, String, String> {
    final String tag; KeyValueStore<String, String> store;
    Tally(String tag) { this.tag = tag; }
    public void init(ProcessorContext<String, String> c) { super.init(c); store = c.getStateStore("shared"); }
    public void process(Record<String, String> r) {
      String k = r.key() == null ? "_" : r.key();
      String a = store.get(k);
      String n = (a == null ? "" : a) + tag + r.value();
      store.put(k, n);
      context().forward(r.withKey(tag + k).withValue(n));
    }
  }
  static class Versions implements ValueTransformerWithKey<String, String, String> {
    KeyValueStore<String, String> store;
    public void init(org.apache.kafka.streams.processor.ProcessorContext c) { store = c.getStateStore("versions"); }
    public String transform(String k, String v) {
      String old = store.get(k);
      long n = old == null ? 1 : Long.parseLong(old) + 1;
      store.put(k, String.valueOf(n));
      return v == null ? null : v.equals("b") ? null : k + ":" + v + "#" + n;
    }
    public void close() { }
  }
}
