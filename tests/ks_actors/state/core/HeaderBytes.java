package org.apache.kafka.streams.state.internals;

// Prints what Kafka Streams 4.4.0 writes into stores with headers, for tests/ks_actors/state/core/test_header_bytes.py:
//   javac -cp 'LIB/*' -d OUT tests/ks_actors/state/core/HeaderBytes.java && java -cp 'OUT:LIB/*' org.apache.kafka.streams.state.internals.HeaderBytes
// LIB is tests/differential/oracle/target/lib. One line per value: its name, and hexadecimal digits. It is in the package of the serializers, which are not public.
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.ValueTimestampHeaders;

public final class HeaderBytes {
  private static void say(String name, byte[] bytes) {
    System.out.println(name + " " + HexFormat.of().formatHex(bytes));
  }

  private static byte[] bytes(int count, int value) {
    byte[] made = new byte[count];
    Arrays.fill(made, (byte) value);
    return made;
  }

  private static void all(String name, Headers headers) {
    var values = new ValueTimestampHeadersSerializer<>(new StringSerializer());
    var aggregations = new AggregationWithHeadersSerializer<>(new StringSerializer());
    say(name + " value", values.serialize("t", ValueTimestampHeaders.make("v", 1_700_000_000_123L, headers)));
    say(name + " aggregation", aggregations.serialize("t", AggregationWithHeaders.make("v", headers)));
  }

  public static void main(String[] arguments) {
    all("none", new RecordHeaders());
    all("one", new RecordHeaders().add("a", new byte[] {1, 2}));
    all("null", new RecordHeaders().add("a", null));
    all("empty", new RecordHeaders().add("", new byte[0]));
    all("twice", new RecordHeaders().add("a", new byte[] {1}).add("b", null).add("a", new byte[] {2}));
    all("umlaut", new RecordHeaders().add("\u00e4\u6f22\ud83d\ude00", new byte[] {-1}));
    all("63", new RecordHeaders().add("k", bytes(63, 7)));
    all("64", new RecordHeaders().add("k", bytes(64, 7)));
    all("9000", new RecordHeaders().add("k", bytes(9000, 7)));
    Headers many = new RecordHeaders();
    for (int i = 0; i < 70; i++) many.add("h" + i, new byte[] {(byte) i});
    all("many", many);
    byte[] old = "\0\0\0\0\0\0\0\5old".getBytes(StandardCharsets.UTF_8);
    say("upgraded timestamped", HeadersBytesStore.convertToHeaderFormat(old));
    say("upgraded plain", HeadersBytesStore.convertFromPlainToHeaderFormat("old".getBytes(StandardCharsets.UTF_8)));
  }
}
