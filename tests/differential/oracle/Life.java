package oracle;

// Runs topologies of recording processors through the real Kafka Streams' TopologyTestDriver: when each is initialized, called, punctuated and closed.
// stdin: one JSON case per line, as tests/differential/life.py makes them; stdout: one JSON list of events per line.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

public final class Life {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Life() {}

  private static final class Recording implements Processor<String, String, String, String> {
    private final String name;
    private final JsonNode schedules;
    private final List<String> events;
    private final List<Cancellable> cancellables = new ArrayList<>();
    private ProcessorContext<String, String> context;

    private Recording(JsonNode node, List<String> events) {
      this.name = node.get("name").asText();
      this.schedules = node.get("schedules");
      this.events = events;
    }

    @Override public void init(ProcessorContext<String, String> context) {
      this.context = context;
      events.add("init " + name);
      for (int i = 0; i < schedules.size(); i++) {
        JsonNode one = schedules.get(i);
        int number = i;
        int[] calls = {0};
        PunctuationType type = one.get("clock").asText().equals("stream") ? PunctuationType.STREAM_TIME : PunctuationType.WALL_CLOCK_TIME;
        cancellables.add(context.schedule(Duration.ofMillis(one.get("every").asLong()), type, now -> {
          events.add("punctuate " + name + " " + number + " " + now);
          if (++calls[0] == one.get("cancel_after").asInt()) cancellables.get(one.get("cancels").asInt()).cancel();
        }));
      }
    }

    @Override public void process(Record<String, String> record) {
      events.add("process " + name + " " + record.timestamp());
      context.forward(record);
    }

    @Override public void close() {
      events.add("close " + name);
    }
  }

  private static List<String> run(String line) throws Exception {
    JsonNode c = JSON.readTree(line);
    List<String> events = new ArrayList<>();
    Topology topology = new Topology();
    for (JsonNode node : c.get("nodes")) {
      String name = node.get("name").asText();
      String[] parents = StreamSupport.stream(node.get("parents").spliterator(), false).map(JsonNode::asText).toArray(String[]::new);
      if (parents.length == 0) topology.addSource(name, name + "-topic");
      else topology.addProcessor(name, () -> new Recording(node, events), parents);
    }
    Properties props = new Properties();
    props.put("application.id", "life");
    props.put("bootstrap.servers", "x:1");
    props.put("default.key.serde", Serdes.StringSerde.class.getName());
    props.put("default.value.serde", Serdes.StringSerde.class.getName());
    props.put("state.dir", Files.createTempDirectory("life").toString());
    try (TopologyTestDriver driver = new TopologyTestDriver(topology, props, Instant.ofEpochMilli(0))) {
      for (JsonNode step : c.get("steps")) {
        if (step.has("advance_wall_ms")) driver.advanceWallClockTime(Duration.ofMillis(step.get("advance_wall_ms").asLong()));
        else driver.createInputTopic(step.get("topic").asText(), Parts.S.serializer(), Parts.S.serializer())
            .pipeInput("k", "v", step.get("timestamp").asLong());
      }
    }
    return events;
  }

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) System.out.println(JSON.writeValueAsString(run(line)));
  }
}
