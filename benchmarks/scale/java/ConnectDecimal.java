import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.functions.ScalarFunction;

/** Reads Connect's Decimal of scale 2: Flink's format decodes its bytes from base64, and has no function for the rest. */
public final class ConnectDecimal extends ScalarFunction {
    public @DataTypeHint("DECIMAL(12, 2)") BigDecimal eval(byte[] unscaled) {
        return unscaled == null ? null : new BigDecimal(new BigInteger(unscaled), 2);
    }
}
