package oracle;

// Pipes generated input through the real Kafka Streams' TopologyTestDriver.
// stdin: one JSON case per line; stdout: one JSON result per line, in the same order.
// Arguments: --threads N (1); --store in_memory|rocksdb|other (replace every case's "store" parameter; other = the one it does not name);
// --describe true (each result also has its stores and Topology.describe()).
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

public final class Oracle {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static String store = null;
  private static boolean describe = false;

  private Oracle() {}

  private static Properties properties(JsonNode params, File directory) {
    Properties props = new Properties();
    props.put("application.id", "oracle");
    props.put("bootstrap.servers", "x:1");
    props.put("default.key.serde", Serdes.StringSerde.class.getName());
    props.put("default.value.serde", Serdes.StringSerde.class.getName());
    props.put("statestore.cache.max.bytes", Parts.str(params, "cache", "0"));
    props.put("dsl.store.format", Parts.str(params, "format", "DEFAULT"));
    props.put("topology.optimization", Parts.str(params, "optimization", "none"));
    props.put("dsl.store.suppliers.class", Parts.rocks(params)
        ? BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class : BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
    // No wall-clock throttling of what closing windows emit: when it comes is a function of the records alone.
    props.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
    props.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
    props.put("state.dir", directory.getPath());
    return props;
  }

  private static TestRecord<String, String> record(JsonNode step) {
    RecordHeaders headers = new RecordHeaders();
    for (JsonNode header : step.path("headers")) headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
    return new TestRecord<>(step.hasNonNull("key") ? step.get("key").asText() : null,
        step.hasNonNull("value") ? step.get("value").asText() : null, headers, Long.valueOf(step.get("timestamp").asLong()));
  }

  private static String run(String line) throws Exception {
    JsonNode c = JSON.readTree(line);
    ObjectNode params = (ObjectNode) c.get("params");
    if (store != null && params.has("store"))
      params.put("store", !store.equals("other") ? store : Parts.rocks(params) ? "in_memory" : "rocksdb");
    ObjectNode result = JSON.createObjectNode();
    result.set("id", c.get("id"));
    Topologies.Topo topo = Topologies.ALL.get(c.get("topology").asText());
    if (topo == null) throw new IllegalArgumentException("unknown topology " + c.get("topology"));
    File directory = Files.createTempDirectory("oracle").toFile();
    Properties props = properties(params, directory);
    ArrayNode expected = result.putArray("expected");
    int step = -1;
    try {
      Topology t = topo.build().build(new StreamsBuilder(new TopologyConfig(new StreamsConfig(props))), params, props);
      try (TopologyTestDriver d = new TopologyTestDriver(t, props, Instant.ofEpochMilli(0))) {
        Map<String, TestInputTopic<String, String>> in = new HashMap<>();
        Map<String, TestOutputTopic<String, String>> out = new LinkedHashMap<>();
        for (String o : topo.outs()) out.put(o, d.createOutputTopic(o, Parts.S.deserializer(), Parts.S.deserializer()));
        for (JsonNode s : c.get("steps")) {
          step++;
          if (s.has("advance_wall_ms")) d.advanceWallClockTime(Duration.ofMillis(s.get("advance_wall_ms").asLong()));
          else in.computeIfAbsent(s.get("topic").asText(), q -> d.createInputTopic(q, Parts.S.serializer(), Parts.S.serializer())).pipeInput(record(s));
          for (Map.Entry<String, TestOutputTopic<String, String>> e : out.entrySet())
            for (TestRecord<String, String> r : e.getValue().readRecordsToList()) {
              ObjectNode n = expected.addObject();
              n.put("after_step", step);
              if (topo.outs().size() > 1) n.put("topic", e.getKey());
              n.put("key", r.key());
              n.put("value", r.value());
              n.put("timestamp", r.timestamp());
              if (r.headers().iterator().hasNext()) {
                ArrayNode headers = n.putArray("headers");
                for (Header header : r.headers()) headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
              }
            }
        }
        long dropped = 0;
        for (var m : d.metrics().values())
          if (m.metricName().name().equals("dropped-records-total")) dropped += ((Double) m.metricValue()).longValue();
        result.put("dropped", dropped);
        if (describe) {
          ObjectNode stores = result.putObject("stores");
          for (var e : d.getAllStateStores().entrySet()) stores.put(e.getKey(), e.getValue().persistent());
          result.put("describe", t.describe().toString());
          result.set("order", order(t));
        }
      }
    } catch (Throwable e) {
      Throwable root = e;
      while (root.getCause() != null) root = root.getCause();
      result.put("error", "step " + step + ": " + e.getClass().getSimpleName() + ": " + root);
    } finally {
      delete(directory);
    }
    return JSON.writeValueAsString(result);
  }

  /** The nodes of all subtopologies, in the order in which a task initializes, punctuates and closes them. */
  private static ArrayNode order(Topology t) throws Exception {
    Field field = Topology.class.getDeclaredField("internalTopologyBuilder");
    field.setAccessible(true);
    ArrayNode names = JSON.createArrayNode();
    ((InternalTopologyBuilder) field.get(t)).buildTopology().processors().forEach(node -> names.add(node.name()));
    return names;
  }

  private static void delete(File f) {
    File[] inside = f.listFiles();
    if (inside != null) for (File x : inside) delete(x);
    f.delete();
  }

  public static void main(String[] args) throws Exception {
    int threads = 1;
    for (int i = 0; i + 1 < args.length; i += 2) {
      if (args[i].equals("--threads")) threads = Integer.parseInt(args[i + 1]);
      if (args[i].equals("--store")) store = args[i + 1];
      if (args[i].equals("--describe")) describe = Boolean.parseBoolean(args[i + 1]);
    }
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Future<String>> results = new ArrayList<>();
    BufferedReader r = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = r.readLine()) != null; ) {
      if (line.isBlank()) continue;
      final String c = line;
      results.add(pool.submit(() -> run(c)));
    }
    BufferedWriter w = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    for (Future<String> f : results) { w.write(f.get()); w.write('\n'); }
    w.flush();
    pool.shutdown();
    System.exit(0);
  }
}
