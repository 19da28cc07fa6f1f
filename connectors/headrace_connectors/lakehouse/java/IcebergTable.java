package headrace;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.stream.StreamSupport;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.TableUtil;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.NoSuchIcebergTableException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.iceberg.util.PropertyUtil;
import org.apache.iceberg.util.SnapshotUtil;
import org.apache.spark.sql.SparkSession;

/**
 * An Iceberg table as its catalog has it now. What every batch needs of a table is one call.
 *
 * <p>Python waits for its lock after each call, and after each object that it drops: with many tables for milliseconds.
 * The table is loaded by Iceberg's catalog, because Spark would parse its name and convert its schema each time.
 */
public final class IcebergTable {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Table table;

    private IcebergTable(Table table) {
        this.table = table;
    }

    /**
     * Load the table of a catalog of {@code session}, which becomes the active session of the thread. Return null if
     * there is no such table: for an exception Python would ask for its class ten times.
     */
    public static IcebergTable find(SparkSession session, String catalog, String namespace, String name) {
        // Iceberg's classes read the settings of the active session, and a new thread has none.
        SparkSession.setActiveSession(session);
        try {
            TableIdentifier identifier = TableIdentifier.of(namespace, name);
            return new IcebergTable(Spark3Util.loadIcebergCatalog(session, catalog).loadTable(identifier));
        } catch (NoSuchIcebergTableException otherFormat) {
            throw otherFormat;
        } catch (NoSuchTableException missing) {
            return null;
        }
    }

    /** Load a table, and return its {@link #state()}; null without one. */
    public static String load(SparkSession session, String catalog, String namespace, String name)
            throws JsonProcessingException {
        IcebergTable found = find(session, catalog, namespace, name);
        return found == null ? null : found.state();
    }

    public Table table() {
        return table;
    }

    /** Return as JSON: id and sequence number of the newest snapshot (0 without one), format version, and properties. */
    public String state() throws JsonProcessingException {
        Snapshot newest = table.currentSnapshot();
        ObjectNode state = JSON.createObjectNode();
        state.put("snapshot", newest == null ? 0 : newest.snapshotId());
        state.put("sequence", newest == null ? 0 : newest.sequenceNumber());
        state.put("format", TableUtil.formatVersion(table));
        state.set("properties", JSON.valueToTree(table.properties()));
        return JSON.writeValueAsString(state);
    }

    /** Return as JSON the newest snapshot before or at the current one whose summary has this entry; null without one. */
    public String snapshotWith(String name, String value) {
        for (Snapshot ancestor : SnapshotUtil.currentAncestors(table)) {
            if (value.equals(ancestor.summary().get(name))) {
                return SnapshotParser.toJson(ancestor);
            }
        }
        return null;
    }

    /**
     * Return what the snapshots after one with this id have done, newest first, as JSON: id, operation, whether rows were
     * added. Return null if it is not before the current one, or if there are more than {@code most}.
     */
    public String snapshotsSince(long id, int most) throws JsonProcessingException {
        ArrayNode later = JSON.createArrayNode();
        for (Snapshot ancestor : SnapshotUtil.currentAncestors(table)) {
            if (ancestor.snapshotId() == id) {
                return JSON.writeValueAsString(later);
            }
            if (later.size() == most) {
                return null;
            }
            ObjectNode snapshot = later.addObject();
            snapshot.put("id", ancestor.snapshotId());
            snapshot.put("operation", ancestor.operation());
            snapshot.put("adds", ancestor.summary().containsKey("added-records"));
        }
        return null;
    }

    /**
     * Expire snapshots by the table's properties, and of those that are older than {@code recentMs} all but the {@code
     * most} newest; any number with {@code most} 0.
     *
     * <p>Iceberg would delete the files that an expired snapshot has removed, also a Puffin file in which the vector of one
     * data file was replaced and that of another is in use (https://github.com/apache/iceberg/issues/17456). Where the
     * snapshots are named, it compares the files that all snapshots refer to.
     *
     * @return the files, one a line, that no snapshot refers to any more. Queries may still read them.
     */
    public String expire(long recentMs, int most) {
        Optional<Snapshot> newestToExpire = most == 0
                ? Optional.empty()
                : StreamSupport.stream(SnapshotUtil.currentAncestors(table).spliterator(), false)
                        .skip(most)
                        .findFirst();
        long now = System.currentTimeMillis();
        long maxAge = PropertyUtil.propertyAsLong(
                table.properties(), TableProperties.MAX_SNAPSHOT_AGE_MS, TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT);
        long byNumber = newestToExpire
                .map(snapshot -> Math.min(snapshot.timestampMillis() + 1, now - recentMs))
                .orElse(Long.MIN_VALUE);
        long before = Math.max(byNumber, now - maxAge);
        List<String> unread = Collections.synchronizedList(new ArrayList<>());
        ExpireSnapshots expiry = table.expireSnapshots().expireOlderThan(before).deleteWith(unread::add);
        List<Snapshot> expiring = table.expireSnapshots().expireOlderThan(before).apply();
        if (!expiring.isEmpty()) {
            expiring.forEach(snapshot -> expiry.expireSnapshotId(snapshot.snapshotId()));
            expiry.commit();
        }
        return String.join("\n", unread);
    }

    /** Delete files, one a line. What cannot be deleted stays, as a file of a commit that has failed. */
    public void delete(String files) {
        CatalogUtil.deleteFiles(table.io(), List.of(files.split("\n")), "expired", true);
    }

    /** Return the schema as JSON. */
    public String schema() {
        return SchemaParser.toJson(table.schema());
    }

    /** Return a part of a file. */
    public byte[] read(String location, long offset, int size) throws IOException {
        try (SeekableInputStream stream = table.io().newInputFile(location).newStream()) {
            stream.seek(offset);
            return stream.readNBytes(size);
        }
    }

    /** Append a Parquet file with {@code rows} rows of one partition (as in a path), and return the new state. */
    public String append(byte[] content, long rows, String partition) throws IOException {
        String location = table.locationProvider()
                .newDataLocation(partition + "/" + UUID.randomUUID() + ".parquet");
        try (PositionOutputStream stream = table.io().newOutputFile(location).create()) {
            stream.write(content);
        }
        DataFile file = DataFiles.builder(table.spec())
                .withPath(location)
                .withFormat(FileFormat.PARQUET)
                .withFileSizeInBytes(content.length)
                .withRecordCount(rows)
                .withPartitionPath(partition)
                .build();
        table.newAppend().appendFile(file).commit();
        return state();
    }
}
