package savanna.bench;

import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.functions.ScalarFunction;

/** How often an ASCII character occurs in a text: the function that query 14 needs, over bytes, so that none is decoded. */
public final class CountChar extends ScalarFunction {
    public long eval(@DataTypeHint("STRING") StringData text, @DataTypeHint("STRING") StringData character) {
        byte wanted = character.toBytes()[0];
        long count = 0;
        for (byte each : text.toBytes()) {
            if (each == wanted) {
                count++;
            }
        }
        return count;
    }
}
