package oracle;

// Says of each graph what Kafka Streams refuses when ensure.explicit.internal.resource.naming is true (KIP-1111).
// stdin: one graph per line; stdout: one JSON object per line, with the lines of its error.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.TopologyException;

public final class Unnamed {
  private Unnamed() {}

  public static void main(String[] args) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JsonNode graph = json.readTree(line), params = graph.get("params");
      Properties props = new Properties();
      props.put("application.id", "oracle");
      props.put("bootstrap.servers", "x:1");
      props.put("ensure.explicit.internal.resource.naming", "true");
      props.put("topology.optimization", Parts.str(params, "optimization", "none"));
      ObjectNode result = json.createObjectNode().put("id", graph.get("id").asText());
      ArrayNode lines = result.putArray("error");
      try {
        Topologies.ALL.get(graph.get("topology").asText()).build()
            .build(new StreamsBuilder(new TopologyConfig(new StreamsConfig(props))), params, props);
      } catch (TopologyException refused) {
        for (String each : refused.getMessage().split("\\R")) lines.add(each);
      }
      System.out.println(json.writeValueAsString(result));
    }
  }
}
