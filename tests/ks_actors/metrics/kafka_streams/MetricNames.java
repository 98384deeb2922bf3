import java.lang.reflect.Field;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The metrics of Kafka Streams itself, for the topology of topology.py: a line for each, with group, name, level and tags. Options: bootstrap, app-id,
 * state-dir. The topics in, table, out and final are there.
 */
public class MetricNames {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("app-id"));
        config.put(StreamsConfig.CLIENT_ID_CONFIG, "client");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state-dir"));
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "1000000");
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        config.put(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "TRACE");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        KafkaStreams streams = new KafkaStreams(topology().build(config), config);
        streams.start();
        produce(options.get("bootstrap"));
        long until = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < until && !done(streams)) {
            Thread.sleep(100);
        }
        Thread.sleep(2_000);
        print(streams);
        streams.close(Duration.ofSeconds(10));
    }

    static KGroupedStream<String, String> grouped(KStream<String, String> in) {
        return in.groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
    }

    static Materialized<String, Long, WindowStore<Bytes, byte[]>> windows(String name) {
        return Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(name).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long());
    }

    static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> in = builder.stream("in", Consumed.<String, String>as("input"));
        grouped(in).count(Named.as("counting"), Materialized.as("counts")).toStream(Named.as("counted"))
            .to("out", Produced.<String, Long>as("output").withValueSerde(Serdes.Long()));
        grouped(in).reduce((one, other) -> other, Named.as("reducing"), Materialized.as(Stores.inMemoryKeyValueStore("latest")));
        grouped(in).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ZERO))
            .count(Named.as("windowing"), windows("windows"))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("closing"))
            .toStream(Named.as("closed")).map((Windowed<String> window, Long count) -> new KeyValue<>(window.key(), count), Named.as("unwindowed"))
            .to("final", Produced.<String, Long>as("final-output").withValueSerde(Serdes.Long()));
        grouped(in).windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), Duration.ZERO))
            .count(Named.as("sessioning"), Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
        grouped(in).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(20), Duration.ZERO))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Named.as("emitting"), windows("emitted"));
        builder.table("table", Consumed.<String, String>as("rows-input"), Materialized.as("rows"))
            .groupBy((key, value) -> new KeyValue<>(value, key), Grouped.as("by-value"))
            .count(Named.as("counting-rows"), Materialized.as("row-counts"));
        return builder;
    }

    static void produce(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>("in", 0, i * 1_000L, "key" + i % 5, "value" + i));
                producer.send(new ProducerRecord<>("table", 0, i * 1_000L, "key" + i % 5, "value" + i % 3));
            }
        }
    }

    static boolean done(KafkaStreams streams) {
        double records = 0;
        for (var metric : streams.metrics().values()) {
            if (metric.metricName().name().equals("records-consumed-total") && metric.metricName().group().equals("stream-topic-metrics")) {
                records += (Double) metric.metricValue();
            }
        }
        return records >= 300;
    }

    static void print(KafkaStreams streams) throws Exception {
        Field field = KafkaStreams.class.getDeclaredField("metrics");
        field.setAccessible(true);
        Map<MetricName, String> levels = levels((Metrics) field.get(streams));
        Set<String> lines = new TreeSet<>();
        for (var metric : streams.metrics().values()) {
            MetricName name = metric.metricName();
            if (name.group().startsWith("stream-")) {
                lines.add(name.group() + "\t" + name.name() + "\t" + levels.get(name) + "\t" + new TreeMap<>(name.tags()));
            }
        }
        lines.forEach(System.out::println);
    }

    static Map<MetricName, String> levels(Metrics metrics) throws Exception {
        Map<MetricName, String> levels = new HashMap<>();
        for (KafkaMetric metric : metrics.metrics().values()) {
            levels.put(metric.metricName(), metric.config().recordLevel().name());
        }
        Field all = Metrics.class.getDeclaredField("sensors");
        Field level = Sensor.class.getDeclaredField("recordingLevel");
        Field own = Sensor.class.getDeclaredField("metrics");
        for (Field each : new Field[] {all, level, own}) {
            each.setAccessible(true);
        }
        for (Object sensor : new HashSet<>(((Map<?, ?>) all.get(metrics)).values())) {
            for (Object name : ((Map<?, ?>) own.get(sensor)).keySet()) {
                levels.put((MetricName) name, level.get(sensor).toString());
            }
        }
        return levels;
    }
}
