import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;

/**
 * Kafka Streams itself: a running count per key, every update to the output, until SIGTERM. Options: bootstrap, guarantee, input, output, app-id, state-dir; with
 * gap (ms) the count of each key's sessions; session-timeout (s) of its group. With other, a topic, input and that one are tables, and the output is
 * their left join by the foreign key before the bar of a value.
 */
public class CountApp {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("app-id"));
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state-dir"));
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, options.get("guarantee"));
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // Before Kafka 4.2 a member leaves on close only so.
        config.put(StreamsConfig.consumerPrefix("internal.leave.group.on.close"), true);
        if (options.containsKey("session-timeout")) {
            int timeout = (int) (Double.parseDouble(options.get("session-timeout")) * 1000);
            config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), timeout);
            config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), timeout / 3);
        }

        StreamsBuilder builder = new StreamsBuilder();
        if (options.containsKey("other")) {
            join(builder, options);
        } else {
            count(builder, options);
        }
        run(new KafkaStreams(builder.build(config), config));
    }

    static void join(StreamsBuilder builder, Map<String, String> options) {
        Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
        KTable<String, String> left = builder.table(options.get("input"), texts);
        KTable<String, String> right = builder.table(options.get("other"), texts);
        Function<String, String> foreignKey = value -> value.startsWith("-") ? null : value.substring(0, value.indexOf('|'));
        left.leftJoin(right, foreignKey, (one, other) -> one + "+" + other, TableJoined.as("j"), Materialized.with(Serdes.String(), Serdes.String()))
            .toStream().to(options.get("output"), Produced.with(Serdes.String(), Serdes.String()));
    }

    static void count(StreamsBuilder builder, Map<String, String> options) {
        KGroupedStream<byte[], byte[]> grouped =
            builder.stream(options.get("input"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).groupByKey();
        KStream<byte[], Long> counts;
        if (options.containsKey("gap")) {
            Duration gap = Duration.ofMillis(Long.parseLong(options.get("gap")));
            counts = grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(gap, gap))
                .count(Materialized.<byte[], Long, SessionStore<Bytes, byte[]>>as("counts").withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long()))
                .toStream((session, count) -> session.key())
                .filter((key, count) -> count != null);
        } else {
            counts = grouped
                .count(Materialized.<byte[], Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long()))
                .toStream();
        }
        counts.to(options.get("output"), Produced.with(Serdes.ByteArray(), Serdes.Long()));
    }

    static void run(KafkaStreams streams) throws InterruptedException {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch stop = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            failure.set(error);
            error.printStackTrace();
            stop.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.countDown();
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        streams.start();
        stop.await();
        // Its successor is not in Kafka 4.0.
        boolean clean = streams.close(new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(30)));
        // The hook never returns: the exit code is ours.
        Runtime.getRuntime().halt(clean && failure.get() == null ? 0 : 1);
    }
}
