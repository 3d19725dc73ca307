package savanna.bench;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;

/** Emits the wanted columns of the events of one kind, in one split per subtask. Does not take part in checkpoints. */
final class NexmarkSource implements Source<RowData, NexmarkSource.Part, Void> {
    private static final long serialVersionUID = 1;

    /** Which events there are, and what of them is read. */
    record Scan(Events.Kind kind, List<String> columns, long events, long seed, long rate) implements Serializable {}

    /** The blocks whose number leaves this remainder: blocks are dealt round-robin, so that all parts progress evenly. */
    record Part(int number) implements SourceSplit {
        @Override
        public String splitId() {
            return Integer.toString(number);
        }
    }

    private final Scan scan;

    NexmarkSource(Scan scan) {
        this.scan = scan;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<RowData, Part> createReader(SourceReaderContext context) {
        return new Reader(scan, context);
    }

    @Override
    public SplitEnumerator<Part, Void> createEnumerator(SplitEnumeratorContext<Part> context) {
        return new Enumerator(context);
    }

    @Override
    public SplitEnumerator<Part, Void> restoreEnumerator(SplitEnumeratorContext<Part> context, Void checkpoint) {
        return new Enumerator(context);
    }

    @Override
    public SimpleVersionedSerializer<Part> getSplitSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override
            public int getVersion() {
                return 1;
            }

            @Override
            public byte[] serialize(Part part) {
                return ByteBuffer.allocate(4).putInt(part.number).array();
            }

            @Override
            public Part deserialize(int version, byte[] bytes) {
                return new Part(ByteBuffer.wrap(bytes).getInt());
            }
        };
    }

    @Override
    public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override
            public int getVersion() {
                return 1;
            }

            @Override
            public byte[] serialize(Void nothing) {
                return new byte[0];
            }

            @Override
            public Void deserialize(int version, byte[] bytes) {
                return null;
            }
        };
    }

    private record Enumerator(SplitEnumeratorContext<Part> context) implements SplitEnumerator<Part, Void> {
        @Override
        public void start() {}

        @Override
        public void addReader(int subtask) {
            context.assignSplit(new Part(subtask), subtask);
            context.signalNoMoreSplits(subtask);
        }

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<Part> parts, int subtask) {}

        @Override
        public Void snapshotState(long checkpoint) {
            return null;
        }

        @Override
        public void close() {}
    }

    private static final class Reader implements SourceReader<RowData, Part> {
        /** How many events are gone through before the task looks for anything else to do. */
        private static final int BURST = 1_024;

        private final Scan scan;
        private final int parts;
        private final long block;
        private final Events.Column[] columns;
        private final CompletableFuture<Void> assigned = new CompletableFuture<>();
        private long next;

        Reader(Scan scan, SourceReaderContext context) {
            this.scan = scan;
            parts = context.currentParallelism();
            block = Math.min(Math.max(scan.rate / 10, 64), 8_192);
            Events events = new Events(scan.seed, scan.rate);
            columns = scan.columns.stream().map(name -> events.column(scan.kind, name)).toArray(Events.Column[]::new);
        }

        @Override
        public void start() {}

        @Override
        public void addSplits(List<Part> parts) {
            next = parts.get(0).number * block;
            assigned.complete(null);
        }

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public CompletableFuture<Void> isAvailable() {
            return assigned;
        }

        @Override
        public InputStatus pollNext(ReaderOutput<RowData> output) {
            if (!assigned.isDone()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            for (int i = 0; i < BURST; i++) {
                if (next >= scan.events) {
                    return InputStatus.END_OF_INPUT;
                }
                int offset = (int) (next % Events.GROUP);
                if (offset >= scan.kind.start && offset < scan.kind.end) {
                    output.collect(row(next));
                }
                next++;
                if (next % block == 0) {
                    next += (parts - 1) * block;
                }
            }
            return InputStatus.MORE_AVAILABLE;
        }

        private RowData row(long n) {
            GenericRowData row = new GenericRowData(columns.length);
            for (int i = 0; i < columns.length; i++) {
                row.setField(i, columns[i].of(n));
            }
            return row;
        }

        @Override
        public List<Part> snapshotState(long checkpoint) {
            return List.of();
        }

        @Override
        public void close() {}
    }
}
