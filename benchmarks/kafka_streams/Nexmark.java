import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;
import org.apache.kafka.streams.state.*;

import java.time.Duration;
import java.util.*;

/**
 * Nexmark's queries on Kafka Streams; benchmarks/nexmark/queries.py has the same ones in Python.
 *   --query q0|...|q12  --bootstrap B  --bids T --auctions T --persons T --output T  --app-id ID --state-dir D --threads N
 *   --commit-ms N --cache BYTES --guarantee at_least_once|exactly_once_v2
 * Prints "running" as soon as it is, and runs until stdin ends.
 */
public class Nexmark {
    record Bid(long auction, long bidder, long price, long date_time) { }
    record Auction(long id, long seller, long category, long date_time, long expires) { }
    record Person(long id, String name, String city, String state, long date_time) { }
    record Winning(long auction, long seller, long category, long expires, long price, long bidder, long date_time) { }
    record Total(long sum, long count) { }
    record Hot(long auction, long count) { }
    record Sale(long expires, long price) { }
    record Sales(Map<String, Sale> by) { }

    static final Duration WINDOW = Duration.ofSeconds(10), HOP = Duration.ofSeconds(2), GRACE = Duration.ofHours(1);
    static final long WINDOW_MS = WINDOW.toMillis();
    static final ObjectMapper JSON = new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    static final Serde<String> KEY = Serdes.String();
    static final Serde<Bid> BID = json(Bid.class);
    static final Serde<Auction> AUCTION = json(Auction.class);
    static final Serde<Person> PERSON = json(Person.class);
    static final Serde<Winning> WINNING = json(Winning.class);
    static final Serde<Total> TOTAL = json(Total.class);
    static final Serde<Hot> HOT = json(Hot.class);
    static final Serde<Sales> SALES = json(Sales.class);

    static StreamsBuilder b = new StreamsBuilder();
    static Map<String, String> o = new HashMap<>();

    public static void main(String[] argv) throws Exception {
        for (int i = 0; i + 1 < argv.length; i += 2) o.put(argv[i].substring(2), argv[i + 1]);
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, o.get("app-id"));
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, o.get("bootstrap"));
        p.put(StreamsConfig.STATE_DIR_CONFIG, o.get("state-dir"));
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, o.get("threads"));
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, o.get("commit-ms"));
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, o.get("cache"));
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, o.get("guarantee"));
        p.put("auto.offset.reset", "earliest");
        query(o.get("query")).to(o.get("output"), Produced.with(KEY, KEY));
        KafkaStreams ks = new KafkaStreams(b.build(p), p);
        ks.setUncaughtExceptionHandler(e -> { e.printStackTrace(); Runtime.getRuntime().halt(1); return null; });
        ks.start();
        while (ks.state() != KafkaStreams.State.RUNNING) Thread.sleep(20);
        System.out.println("running");
        System.out.flush();
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(ks.close(Duration.ofSeconds(60)) ? 0 : 1);
    }

    static KStream<String, Bid> bids() { return b.stream(o.get("bids"), Consumed.with(KEY, BID)); }
    static KStream<String, Auction> auctions() { return b.stream(o.get("auctions"), Consumed.with(KEY, AUCTION)); }
    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> stored(String name, Serde<V> serde) {
        return Materialized.<String, V, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(KEY).withValueSerde(serde);
    }
    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> windowed(String name, Serde<V> serde) {
        return Materialized.<String, V, WindowStore<Bytes, byte[]>>as(name).withKeySerde(KEY).withValueSerde(serde);
    }
    static KTable<String, Auction> auctionTable() {
        return b.table(o.get("auctions"), Consumed.with(KEY, AUCTION), stored("auctions", AUCTION));
    }

    static KTable<String, Winning> winning() {
        KTable<String, Auction> auctions = auctionTable();
        return bids().join(auctions, (bid, a) -> bid.date_time() < a.date_time() || bid.date_time() > a.expires() ? null
                : new Winning(a.id(), a.seller(), a.category(), a.expires(), bid.price(), bid.bidder(), bid.date_time()), Joined.with(KEY, BID, AUCTION))
            .filter((k, best) -> best != null)
            .groupByKey(Grouped.with(KEY, WINNING))
            .reduce((x, y) -> y.price() > x.price() || (y.price() == x.price() && y.date_time() < x.date_time()) ? y : x, stored("winning", WINNING));
    }

    static KStream<String, String> query(String name) {
        switch (name) {
            case "q0": return bids().mapValues(x -> x.auction() + "," + x.bidder() + "," + x.price() + "," + x.date_time());
            case "q1": return bids().mapValues(x -> x.auction() + "," + x.bidder() + "," + x.price() * 908 / 1000 + "," + x.date_time());
            case "q2": return bids().filter((k, x) -> x.auction() % 123 == 0).mapValues(x -> x.auction() + "," + x.price());
            case "q3": {
                Set<String> states = Set.of("or", "id", "ca");
                KTable<String, Person> local = b.table(o.get("persons"), Consumed.with(KEY, PERSON), stored("persons", PERSON))
                    .filter((k, x) -> states.contains(x.state()));
                return auctionTable().filter((k, x) -> x.category() == 10)
                    .join(local, a -> String.valueOf(a.seller()), (a, s) -> s.name() + "," + s.city() + "," + s.state() + "," + a.id(), stored("told", KEY))
                    .toStream();
            }
            case "q4":
                return winning().groupBy((k, x) -> KeyValue.pair(String.valueOf(x.category()), x), Grouped.with(KEY, WINNING))
                    .aggregate(() -> new Total(0, 0), (k, x, t) -> new Total(t.sum() + x.price(), t.count() + 1),
                               (k, x, t) -> new Total(t.sum() - x.price(), t.count() - 1), stored("totals", TOTAL))
                    .toStream().mapValues(t -> String.valueOf(t.sum() / Math.max(t.count(), 1)));
            case "q5":
                return bids().groupByKey(Grouped.with(KEY, BID)).windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW).advanceBy(HOP))
                    .count(windowed("counts", Serdes.Long())).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream()
                    .map((k, n) -> KeyValue.pair(String.valueOf(k.window().start()), new Hot(Long.parseLong(k.key()), n)))
                    .groupByKey(Grouped.with(KEY, HOT))
                    .reduce((x, y) -> y.count() > x.count() || (y.count() == x.count() && y.auction() < x.auction()) ? y : x, stored("hottest", HOT))
                    .toStream().mapValues(h -> h.auction() + "," + h.count());
            case "q6":
                return winning().groupBy((k, x) -> KeyValue.pair(String.valueOf(x.seller()), x), Grouped.with(KEY, WINNING))
                    .aggregate(() -> new Sales(new HashMap<>()), (k, x, s) -> {
                        Map<String, Sale> by = new HashMap<>(s.by());
                        by.put(String.valueOf(x.auction()), new Sale(x.expires(), x.price()));
                        return new Sales(by);
                    }, (k, x, s) -> {
                        Map<String, Sale> by = new HashMap<>(s.by());
                        by.remove(String.valueOf(x.auction()));
                        return new Sales(by);
                    }, stored("sales", SALES))
                    .toStream().mapValues(s -> {
                        List<Map.Entry<String, Sale>> all = new ArrayList<>(s.by().entrySet());
                        all.sort(Comparator.<Map.Entry<String, Sale>>comparingLong(e -> e.getValue().expires()).thenComparingLong(e -> Long.parseLong(e.getKey())));
                        List<Map.Entry<String, Sale>> last = all.subList(Math.max(0, all.size() - 10), all.size());
                        return String.valueOf(last.stream().mapToLong(e -> e.getValue().price()).sum() / Math.max(last.size(), 1));
                    });
            case "q7":
                return bids().groupBy((k, x) -> "all", Grouped.with(KEY, BID)).windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                    .reduce((x, y) -> RANK.compare(y, x) > 0 ? y : x, windowed("highest", BID))
                    .toStream().map((k, x) -> KeyValue.pair(String.valueOf(k.window().start()), x.auction() + "," + x.price() + "," + x.bidder()));
            case "q8":
                return b.stream(o.get("persons"), Consumed.with(KEY, PERSON))
                    .join(auctions().selectKey((k, a) -> String.valueOf(a.seller())), (x, a) -> {
                        long window = x.date_time() / WINDOW_MS * WINDOW_MS;
                        return a.date_time() < window || a.date_time() >= window + WINDOW_MS ? null : x.id() + "," + x.name() + "," + window;
                    }, JoinWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE), StreamJoined.with(KEY, PERSON, AUCTION).withStoreName("sellers"))
                    .filter((k, v) -> v != null);
            case "q9":
                return winning().toStream().mapValues(x -> x.auction() + "," + x.seller() + "," + x.category() + "," + x.price() + "," + x.bidder() + "," + x.date_time());
            case "q11":
                return bids().groupBy((k, x) -> String.valueOf(x.bidder()), Grouped.with(KEY, BID)).windowedBy(SessionWindows.ofInactivityGapAndGrace(WINDOW, GRACE))
                    .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(KEY).withValueSerde(Serdes.Long()))
                    .toStream().map((k, n) -> KeyValue.pair(k.toString(), n == null ? null : n.toString()));
            case "q12":
                return b.stream(o.get("bids"), Consumed.with(KEY, BID).withTimestampExtractor(new WallclockTimestampExtractor()))
                    .groupBy((k, x) -> String.valueOf(x.bidder()), Grouped.with(KEY, BID)).windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                    .count(windowed("counts", Serdes.Long())).toStream().map((k, n) -> KeyValue.pair(k.toString(), n.toString()));
            default: throw new IllegalArgumentException("query " + name);
        }
    }
    static final Comparator<Bid> RANK = Comparator.comparingLong(Bid::price).thenComparingLong(Bid::auction).thenComparingLong(Bid::bidder);

    static <T> Serde<T> json(Class<T> type) {
        return Serdes.serdeFrom((topic, value) -> {
            try { return value == null ? null : JSON.writeValueAsBytes(value); } catch (java.io.IOException e) { throw new RuntimeException(e); }
        }, (topic, bytes) -> {
            try { return bytes == null ? null : JSON.readValue(bytes, type); } catch (java.io.IOException e) { throw new RuntimeException(e); }
        });
    }
}
