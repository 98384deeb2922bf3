import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.tools.StreamsResetter;

/** Kafka's own tool, once per line of the input, whose words are its arguments; behind each answer is a line with its exit code. */
public final class Resets {
    public static void main(final String[] args) {
        final Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            final int code = new StreamsResetter().execute(lines.nextLine().split(" "), new Properties());
            System.out.println("exit code " + code);
        }
    }
}
