import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/** Visits of pages, counted behind HTTP, with Kafka Streams. */
public class PageCounter {
    static void answer(HttpExchange exchange, String body) throws IOException {
        exchange.sendResponseHeaders(200, body.length());
        exchange.getResponseBody().write(body.getBytes());
        exchange.close();
    }

    static String last(HttpExchange exchange) {
        var path = exchange.getRequestURI().getPath();
        return path.substring(path.lastIndexOf('/') + 1);
    }

    public static void main(String[] arguments) throws IOException {
        var builder = new StreamsBuilder();
        var text = Serdes.String();
        builder.stream("visits", Consumed.with(text, text))
            .groupByKey()
            .count(Materialized.as("counts"));
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "page-counter");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        var streams = new KafkaStreams(builder.build(), settings);
        var producer = new KafkaProducer<>(
            settings, new StringSerializer(), new StringSerializer());
        var address = new InetSocketAddress("localhost", 8080);
        var server = HttpServer.create(address, 0);
        server.createContext("/visit/", exchange -> {
            producer.send(new ProducerRecord<>("visits", last(exchange), ""));
            answer(exchange, "{}");
        });
        server.createContext("/count/", exchange -> {
            ReadOnlyKeyValueStore<String, Long> counts = streams.store(
                StoreQueryParameters.fromNameAndType(
                    "counts", QueryableStoreTypes.keyValueStore()));
            var count = counts.get(last(exchange));
            var found = count == null ? 0 : count;
            answer(exchange, "{\"count\": " + found + "}");
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        server.start();
    }
}
