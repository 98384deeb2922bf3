// Reads graphs as described.txt has them (a command per line, "-----" behind each) and writes what Topology.describe() of Kafka Streams says of them.
// Compile and run it with kafka-streams 4.4.0 on the class path.
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.common.serialization.*;
import java.io.*;
import java.util.*;
public class Described {
  // input: one line per command; "-----" ends a topology
  public static void main(String[] a) throws Exception {
    BufferedReader r = new BufferedReader(new InputStreamReader(System.in));
    Topology t = new Topology();
    for (String l; (l = r.readLine()) != null; ) {
      String[] p = l.split(" ");
      switch (p[0]) {
        case "source": t.addSource(p[1], p[2].split(",")); break;
        case "proc": t.addProcessor(p[1], () -> new ContextualProcessor<Object,Object,Object,Object>() { public void process(org.apache.kafka.streams.processor.api.Record<Object,Object> x) {} }, p[2].split(",")); break;
        case "sink": t.addSink(p[1], p[2], p[3].split(",")); break;
        case "store": t.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(p[1]), Serdes.String(), Serdes.String()), p[2].split(",")); break;
        case "global": t.addGlobalStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(p[1]), Serdes.String(), Serdes.String()).withLoggingDisabled(), p[2], new StringDeserializer(), new StringDeserializer(), p[3], p[4], () -> new ContextualProcessor<String,String,Void,Void>() { public void process(org.apache.kafka.streams.processor.api.Record<String,String> x) {} }); break;
        case "-----": System.out.print(t.describe()); System.out.println("====="); t = new Topology(); break;
      }
    }
  }
}
