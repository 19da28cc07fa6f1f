import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Runs the statements of a file, which blank lines separate, with the configuration in a folder. */
public final class RunSql {
    private RunSql() {}

    /** Prints the id of each job that a statement starts, and does not wait for its end. */
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = GlobalConfiguration.loadConfiguration(arguments[1]);
        configuration.setString("execution.target", "remote");
        configuration.setString("table.local-time-zone", "UTC");
        TableEnvironment environment =
                TableEnvironment.create(EnvironmentSettings.newInstance().withConfiguration(configuration).build());
        for (String statement : Files.readString(Path.of(arguments[0])).split("\n\n")) {
            TableResult result = environment.executeSql(statement);
            result.getJobClient().ifPresent(job -> System.out.println(job.getJobID()));
        }
    }
}
