import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Produced;

/** Orders with their customers, with Kafka Streams. */
public class Enrichment {
    record Customer(String name, String city) {}
    record Order(double amount) {}
    record Parcel(String city, double amount) {}

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
        var customers = builder.table(
            "customers", Consumed.with(text, json(Customer.class)));
        builder.stream("orders", Consumed.with(text, json(Order.class)))
            .join(customers,
                (order, customer) ->
                    new Parcel(customer.city(), order.amount()),
                Joined.with(text, json(Order.class), json(Customer.class)))
            .to("parcels", Produced.with(text, json(Parcel.class)));
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "enrichment");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
