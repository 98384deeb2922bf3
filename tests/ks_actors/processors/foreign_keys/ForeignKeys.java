// Writes foreign_keys.txt: the bytes of a foreign-key join in Kafka Streams, made by its own classes; test_foreign_key_bytes.py has ours give the same.
// Compile and run it with kafka-streams 4.4.0 and kafka-clients on the class path: java ...foreignkeyjoin.ForeignKeys > foreign_keys.txt
package org.apache.kafka.streams.kstream.internals.foreignkeyjoin;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.internals.foreignkeyjoin.SubscriptionWrapper.Instruction;
import org.apache.kafka.streams.state.internals.Murmur3;
public class ForeignKeys {
  static final RecordHeaders NONE = new RecordHeaders();
  static String hex(byte[] data) { return data.length == 0 ? "-" : HexFormat.of().formatHex(data); }
  static String hash(long[] hash) { return hash == null ? "null" : String.format("%016x%016x", hash[0], hash[1]); }
  public static void main(String[] args) {
    Random random = new Random(7);
    for (int length = 0; length <= 66; length++) {
      byte[] data = new byte[length];
      random.nextBytes(data);
      System.out.println("hash " + hex(data) + " " + hash(Murmur3.hash128(data)));
    }
    SubscriptionWrapperSerde<String> subscriptions = new SubscriptionWrapperSerde<>(() -> "topic-pk", Serdes.String());
    subscriptions.serializer().configure(Map.of(), false);
    for (Instruction instruction : Instruction.values()) for (String key : new String[] {"", "k", "käse"}) for (Integer partition : new Integer[] {null, 0, 7, 70000}) for (boolean hashed : new boolean[] {false, true}) {
      long[] hash = hashed ? Murmur3.hash128(key.getBytes()) : null;
      byte version = (byte) (partition == null ? 0 : 1);
      byte[] data = subscriptions.serializer().serialize("topic", NONE, new SubscriptionWrapper<>(hash, instruction, key, version, partition));
      System.out.println("subscription " + hash(hash) + " " + instruction.name() + " " + hex(key.getBytes(java.nio.charset.StandardCharsets.UTF_8)) + " " + partition + " " + hex(data));
    }
    SubscriptionResponseWrapperSerde<String> responses = new SubscriptionResponseWrapperSerde<>(Serdes.String());
    for (String value : new String[] {null, "", "v", "wörter"}) for (boolean hashed : new boolean[] {false, true}) {
      long[] hash = hashed ? Murmur3.hash128("x".getBytes()) : null;
      byte[] data = responses.serializer().serialize("topic", NONE, new SubscriptionResponseWrapper<>(hash, value, 3));
      System.out.println("response " + hash(hash) + " " + (value == null ? "null" : hex(value.getBytes(java.nio.charset.StandardCharsets.UTF_8))) + " " + hex(data));
    }
    CombinedKeySchema<String, Long> schema = new CombinedKeySchema<>(() -> "topic-fk", Serdes.String(), () -> "topic-pk", Serdes.Long());
    for (String foreign : new String[] {"", "f", "füße"}) for (long primary : new long[] {0, 1, -5}) {
      Bytes key = schema.toBytes(foreign, primary, NONE), prefix = schema.prefixBytes(foreign, NONE);
      System.out.println("key " + hex(foreign.getBytes(java.nio.charset.StandardCharsets.UTF_8)) + " " + primary + " " + hex(key.get()) + " " + hex(prefix.get()));
    }
  }
}
