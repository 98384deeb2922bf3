import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** Score cards with more than three payments a minute, with Kafka Streams. */
public class Fraud {
    record Payment(double amount) {}
    record Alert(long payments, double score) {}

    static final HttpClient SCORER = HttpClient.newHttpClient();

    // The calls block: one at a time in each thread.
    static double score(String card) {
        var uri = URI.create("http://localhost:8000/score/" + card);
        var request = HttpRequest.newBuilder(uri).build();
        try {
            var answer =
                SCORER.send(request, HttpResponse.BodyHandlers.ofString());
            return Double.parseDouble(answer.body());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static <T> Serde<T> json(Class<T> type) {
        var mapper = new ObjectMapper();
        return Serdes.serdeFrom(
            (topic, data) -> {
                try {
                    return data == null ? null : mapper.writeValueAsBytes(data);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : mapper.readValue(bytes, type);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }

    public static void main(String[] arguments) {
        var builder = new StreamsBuilder();
        var text = Serdes.String();
        var payment = json(Payment.class);
        builder.stream("payments", Consumed.with(text, payment))
            .groupByKey(Grouped.with(text, payment))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count()
            .toStream()
            .filter((card, count) -> count > 3)
            .map((card, count) ->
                KeyValue.pair(card.key(), new Alert(count, score(card.key()))))
            .filter((card, alert) -> alert.score() > 0.8)
            .to("alerts", Produced.with(text, json(Alert.class)));
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "fraud");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
