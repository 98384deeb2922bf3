import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/** Clicks within ten seconds of their impressions, with Kafka Streams. */
public class WindowedJoin {
    record Impression(String ad) {}
    record Click(String page) {}
    record Effect(String ad, String page) {}

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
        var impressions = builder.stream(
            "impressions", Consumed.with(text, json(Impression.class)));
        builder.stream("clicks", Consumed.with(text, json(Click.class)))
            .join(impressions,
                (click, impression) ->
                    new Effect(impression.ad(), click.page()),
                JoinWindows.ofTimeDifferenceAndGrace(
                    Duration.ofSeconds(10), Duration.ofMinutes(1)
                ).after(Duration.ZERO),
                StreamJoined.with(
                    text, json(Click.class), json(Impression.class)))
            .to("effects", Produced.with(text, json(Effect.class)));
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "windowed-join");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
