import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Kafka's SmokeTestDriver with lengths of our own: its main program always takes 90 seconds. */
public final class Smoke {
    /** Longer than the session timeout and the restart of a member: a member that takes over writes within this time. */
    private static final Duration QUIET = Duration.ofSeconds(8);
    private static final Duration LONGEST_WAIT = Duration.ofSeconds(45);

    public static void main(String[] args) throws Exception {
        if (args[0].equals("topics")) {
            System.out.println(String.join(" ", SmokeTestDriver.topics()));
            return;
        }
        var bootstrap = args[0];
        var records = Integer.parseInt(args[2]);
        var expected = SmokeTestDriver.generate(bootstrap, Integer.parseInt(args[1]), records, Duration.ofSeconds(Long.parseLong(args[3])));
        System.out.println("GENERATED");
        System.out.flush();
        var once = Boolean.parseBoolean(args[4]);
        if (once) {
            waitUntilNothingIsWritten(bootstrap);
        }
        var verdict = SmokeTestDriver.verify(bootstrap, expected, records, once);
        System.exit(verdict.passed() ? 0 : 1);
    }

    /**
     * Wait until the app has written nothing for a while.
     *
     * Exactly once, the driver first looks whether all transactions have ended. It asks for the end of each topic, and afterwards for
     * its own position at the end of what is committed. When the app writes in between, the position is larger, and the driver fails.
     * Behind kills and restarts the app may still be catching up.
     */
    private static void waitUntilNothingIsWritten(String bootstrap) throws Exception {
        var began = System.nanoTime();
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var ends = endsOfTopics(admin);
            var grew = System.nanoTime();
            while (System.nanoTime() - grew < QUIET.toNanos() && System.nanoTime() - began < LONGEST_WAIT.toNanos()) {
                Thread.sleep(500);
                var now = endsOfTopics(admin);
                if (!now.equals(ends)) {
                    ends = now;
                    grew = System.nanoTime();
                }
            }
            var calm = System.nanoTime() - grew >= QUIET.toNanos();
            System.out.println((calm ? "AT REST after " : "STILL WRITING after ") + Duration.ofNanos(System.nanoTime() - began).toMillis() + " ms");
            System.out.flush();
        }
    }

    private static Map<String, Long> endsOfTopics(Admin admin) throws Exception {
        var partitions = admin.describeTopics(Arrays.asList(SmokeTestDriver.topics())).allTopicNames().get().values().stream()
            .flatMap(topic -> topic.partitions().stream().map(partition -> new TopicPartition(topic.name(), partition.partition())))
            .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
        var ends = new TreeMap<String, Long>();
        admin.listOffsets(partitions).all().get().forEach((partition, end) -> ends.put(partition.toString(), end.offset()));
        return ends;
    }
}
