import java.time.Duration;
import java.time.Instant;
import org.apache.kafka.streams.tests.RelationalSmokeTest;

/** Kafka's RelationalSmokeTest as a driver, with lengths of our own, for an application of others. */
public final class Relational {
    public static void main(String[] args) throws InterruptedException {
        switch (args[0]) {
            case "topics" -> System.out.println(String.join(" ", RelationalSmokeTest.topics()));
            default -> System.exit(judge(args[0], args[1], args) ? 0 : 1);
        }
    }

    private static boolean judge(String bootstrap, String what, String[] args) throws InterruptedException {
        if (what.equals("generate")) {
            var data = RelationalSmokeTest.DataSet.generate(Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            data.produce(bootstrap, Duration.ofSeconds(Long.parseLong(args[5])));
            System.out.println("GENERATED");
        }
        var passed = RelationalSmokeTest.App.verifySync(bootstrap, Instant.now().plusSeconds(Long.parseLong(args[2])));
        System.out.println((what.equals("generate") ? "while members run: " : "when all have closed: ") + (passed ? "PASSED" : "FAILED"));
        return passed;
    }
}
