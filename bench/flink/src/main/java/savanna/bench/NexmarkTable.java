package savanna.bench;

import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/**
 * The table {@code 'connector' = 'savanna-nexmark'}: events of the kind that option {@code event} names. The kind is an
 * option, so that the choice of events is always made in the source; columns and watermarks are pushed down to it.
 */
public final class NexmarkTable implements DynamicTableSourceFactory {
    private static final ConfigOption<Events.Kind> EVENT =
            ConfigOptions.key("event").enumType(Events.Kind.class).noDefaultValue();
    private static final ConfigOption<Long> EVENTS = ConfigOptions.key("events.num").longType().noDefaultValue();
    private static final ConfigOption<Long> SEED = ConfigOptions.key("seed").longType().defaultValue(1L);
    private static final ConfigOption<Long> RATE =
            ConfigOptions.key("first-event.rate").longType().defaultValue(10_000L);

    @Override
    public String factoryIdentifier() {
        return "savanna-nexmark";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(EVENT, EVENTS);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(SEED, RATE);
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        return new Table(
                helper.getOptions().get(EVENT),
                helper.getOptions().get(EVENTS),
                helper.getOptions().get(SEED),
                helper.getOptions().get(RATE),
                context.getPhysicalRowDataType());
    }

    private static final class Table
            implements ScanTableSource, SupportsProjectionPushDown, SupportsWatermarkPushDown {
        private final Events.Kind kind;
        private final long events;
        private final long seed;
        private final long rate;
        private DataType type;
        private WatermarkStrategy<RowData> watermarks = WatermarkStrategy.noWatermarks();

        Table(Events.Kind kind, long events, long seed, long rate, DataType type) {
            this.kind = kind;
            this.events = events;
            this.seed = seed;
            this.rate = rate;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public boolean supportsNestedProjection() {
            return false;
        }

        @Override
        public void applyProjection(int[][] fields, DataType produced) {
            type = produced;
        }

        @Override
        public void applyWatermark(WatermarkStrategy<RowData> strategy) {
            watermarks = strategy;
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            RowType row = (RowType) type.getLogicalType();
            List<String> columns = row.getFieldNames();
            NexmarkSource source = new NexmarkSource(new NexmarkSource.Scan(kind, columns, events, seed, rate));
            return new DataStreamScanProvider() {
                @Override
                public DataStream<RowData> produceDataStream(ProviderContext context, StreamExecutionEnvironment env) {
                    return env.fromSource(source, watermarks, "nexmark", InternalTypeInfo.of(row));
                }

                @Override
                public boolean isBounded() {
                    return true;
                }
            };
        }

        @Override
        public DynamicTableSource copy() {
            Table copy = new Table(kind, events, seed, rate, type);
            copy.watermarks = watermarks;
            return copy;
        }

        @Override
        public String asSummaryString() {
            return "Savanna's Nexmark events";
        }
    }
}
