import java.time.Duration;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Kafka's SmokeTestDriver with lengths of our own: its main program always takes 90 seconds. */
public final class Smoke {
    public static void main(String[] args) {
        if (args[0].equals("topics")) {
            System.out.println(String.join(" ", SmokeTestDriver.topics()));
            return;
        }
        var bootstrap = args[0];
        var records = Integer.parseInt(args[2]);
        var expected = SmokeTestDriver.generate(bootstrap, Integer.parseInt(args[1]), records, Duration.ofSeconds(Long.parseLong(args[3])));
        System.out.println("GENERATED");
        System.out.flush();
        var verdict = SmokeTestDriver.verify(bootstrap, expected, records, Boolean.parseBoolean(args[4]));
        System.exit(verdict.passed() ? 0 : 1);
    }
}
