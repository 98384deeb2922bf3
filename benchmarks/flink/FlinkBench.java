import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.InputGroup;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.atomic.LongAdder;

/**
 * One Flink SQL process for the side-by-side benchmark: a cluster in the process, state in RocksDB.  Prints ONE JSON line on stdout.
 *   --app count|wordcount   --guarantee at_least_once|exactly_once_v2
 *   --bootstrap B --input T --output T --app-id ID --state-dir D --threads 1 --cache IGNORED
 * A checkpoint each 100 ms with exactly once, each 30 s with at least once: the commit intervals of the others.
 * Flink ends the job at the ends of the inputs, with a last checkpoint that commits.
 */
public class FlinkBench {
    static final LongAdder IN = new LongAdder();      // records taken from the input topic
    static volatile boolean done;

    /** Counts the records that pass. */
    public static class Seen extends ScalarFunction {
        public boolean eval(@DataTypeHint(inputGroup = InputGroup.ANY) Object value) { IN.increment(); return true; }
        @Override public boolean isDeterministic() { return false; }
    }

    public static void main(String[] argv) throws Exception {
        long jvmStartMs = ManagementFactory.getRuntimeMXBean().getStartTime();
        Map<String, String> o = new HashMap<>();
        for (int i = 0; i + 1 < argv.length; i += 2) o.put(argv[i].substring(2), argv[i + 1]);
        String app = o.get("app");
        boolean once = o.getOrDefault("guarantee", "at_least_once").equals("exactly_once_v2");

        Configuration conf = new Configuration();
        conf.setString("parallelism.default", o.getOrDefault("threads", "1"));
        conf.setString("state.backend.type", "rocksdb");
        conf.setString("execution.checkpointing.incremental", "true");
        conf.setString("execution.checkpointing.dir", Path.of(o.get("state-dir")).toUri().toString());
        conf.setString("execution.checkpointing.interval", once ? "100 ms" : "30 s");
        conf.setString("execution.checkpointing.mode", once ? "EXACTLY_ONCE" : "AT_LEAST_ONCE");
        conf.setString("io.tmp.dirs", o.get("state-dir"));
        TableEnvironment table = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(conf).build());
        table.createTemporarySystemFunction("seen", Seen.class);
        boolean words = app.equals("wordcount");
        if (!words && !app.equals("count")) throw new IllegalArgumentException("app " + app);
        String kafka = "'topic' = '%s', 'properties.bootstrap.servers' = '" + o.get("bootstrap") + "'";
        table.executeSql("CREATE TABLE taken (" + (words ? "" : "k STRING, ") + "v " + (words ? "STRING" : "BYTES") + ") WITH ('connector' = 'kafka', "
            + String.format(kafka, o.get("input")) + ", 'properties.group.id' = '" + o.get("app-id") + "'"
            + ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'value.format' = 'raw'"
            + (words ? "" : ", 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'") + ")");
        table.executeSql("CREATE TABLE counts (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
            + String.format(kafka, o.get("output")) + ", 'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'"
            + ", 'sink.delivery-guarantee' = '" + (once ? "exactly-once" : "at-least-once") + "', 'sink.transactional-id-prefix' = '" + o.get("app-id") + "'"
            + ", 'properties.transaction.timeout.ms' = '600000')");
        String query = words
            ? "SELECT w, COUNT(*) FROM (SELECT v FROM taken WHERE seen(v)) CROSS JOIN UNNEST(SPLIT(v, ' ')) AS t(w) GROUP BY w"
            : "SELECT k, COUNT(*) FROM taken WHERE seen(k) GROUP BY k";

        long startNano = System.nanoTime(), startMs = System.currentTimeMillis();
        List<long[]> curve = Collections.synchronizedList(new ArrayList<>());
        Thread watch = new Thread(() -> {
            while (!done) {
                long n = IN.sum();
                if (n > 0 && (curve.isEmpty() || n > curve.get(curve.size() - 1)[1])) curve.add(new long[]{System.nanoTime(), n});
                try { Thread.sleep(curve.isEmpty() ? 2 : 20); } catch (InterruptedException e) { return; }
            }
        });
        watch.setDaemon(true);
        watch.start();
        table.executeSql("INSERT INTO counts " + query).await();
        long endNano = System.nanoTime(), n = IN.sum();
        done = true;
        watch.join();

        long[] first = curve.get(0), last = curve.get(curve.size() - 1), half = first;
        for (long[] c : curve) if (c[1] * 2 >= n) { half = c; break; }
        Map<String, Object> r = new LinkedHashMap<>();
        r.put("peer", "\"flink\""); r.put("app", '"' + app + '"'); r.put("ok", true);
        r.put("records", n);
        r.put("jvm_to_start_s", (startMs - jvmStartMs) / 1000.0);                          // JVM start -> the job's start
        r.put("first_s", (first[0] - startNano) / 1e9);                                     // the job's start -> first record
        r.put("records_per_s", rate(n, endNano - first[0]));                                // through the last checkpoint
        r.put("processed_per_s", rate(n, last[0] - first[0]));
        r.put("steady_per_s", rate(n - half[1], last[0] - half[0]));                        // second half, JIT warm
        r.put("cpu_s", ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9);
        r.put("rss_mb", vmHwmKb() / 1024);
        StringJoiner json = new StringJoiner(", ", "{", "}");
        r.forEach((key, value) -> json.add('"' + key + "\": " + value));
        System.out.println(json);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static long vmHwmKb() throws Exception {
        for (String l : Files.readAllLines(Path.of("/proc/self/status"))) if (l.startsWith("VmHWM:")) return Long.parseLong(l.replaceAll("\\D", ""));
        return 0;
    }
    static long rate(long n, long nanos) { return nanos <= 0 ? 0 : Math.round(n * 1e9 / nanos); }
}
