package headrace;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.EnvironmentContext;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.GenericManifestFile;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotParser;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.encryption.PlaintextEncryptionManager;
import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.puffin.Blob;
import org.apache.iceberg.puffin.BlobMetadata;
import org.apache.iceberg.puffin.Puffin;
import org.apache.iceberg.puffin.PuffinWriter;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Commits rows and deletion vectors, which the caller has in memory, to an Iceberg table of version 3.
 *
 * <p>A commit is a compare-and-swap: its parent is the snapshot that the caller knows, or it fails. Iceberg's own
 * operations would repeat it on top of another writer's snapshot, which may contain a key of this commit. Nothing is read
 * back: manifests and vectors of the known snapshot are kept. Not thread-safe.
 *
 * <p>All classes of Iceberg are public, except the writer of manifest lists, which is found by reflection.
 */
public final class DirectTable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TypeReference<List<Long>> OFFSETS = new TypeReference<>() {};
    private static final String VECTOR = "deletion-vector-v1";
    private static final int ROW_POSITION = 2147483645; // field id, by the specification of Puffin's blob

    /** Types of partition columns whose values the caller computes, and passes as JSON's numbers, texts and booleans. */
    private static final Set<Type.TypeID> PARTITIONED = Set.of(
            Type.TypeID.BOOLEAN,
            Type.TypeID.INTEGER,
            Type.TypeID.LONG,
            Type.TypeID.DATE,
            Type.TypeID.TIMESTAMP,
            Type.TypeID.STRING);

    /** Totals of a snapshot's summary, and which entries of a commit add to them and subtract from them. */
    private static final String[][] TOTALS = {
        {SnapshotSummary.TOTAL_RECORDS_PROP, SnapshotSummary.ADDED_RECORDS_PROP, SnapshotSummary.DELETED_RECORDS_PROP},
        {SnapshotSummary.TOTAL_FILE_SIZE_PROP, SnapshotSummary.ADDED_FILE_SIZE_PROP, SnapshotSummary.REMOVED_FILE_SIZE_PROP},
        {SnapshotSummary.TOTAL_DATA_FILES_PROP, SnapshotSummary.ADDED_FILES_PROP, SnapshotSummary.DELETED_FILES_PROP},
        {
            SnapshotSummary.TOTAL_DELETE_FILES_PROP,
            SnapshotSummary.ADDED_DELETE_FILES_PROP,
            SnapshotSummary.REMOVED_DELETE_FILES_PROP
        },
        {
            SnapshotSummary.TOTAL_POS_DELETES_PROP,
            SnapshotSummary.ADDED_POS_DELETES_PROP,
            SnapshotSummary.REMOVED_POS_DELETES_PROP
        },
        {SnapshotSummary.TOTAL_EQ_DELETES_PROP, SnapshotSummary.ADDED_EQ_DELETES_PROP, SnapshotSummary.REMOVED_EQ_DELETES_PROP},
    };

    /** The vector of a data file, and the entry of the manifest that contains it. */
    private record Vector(DeleteFile file, long sequence, long snapshot, String manifest) {}

    /** The manifest that contains a data file, and the file's partition. */
    private record Listed(String manifest, StructLike partition) {}

    private final Method listWriter;
    private final Method nextRowId;
    private Table table;
    private TableOperations operations;
    private long known = -1; // the snapshot with these manifests and vectors
    private int schema; // and its schema
    private List<ManifestFile> manifests = List.of();
    private Map<String, Vector> vectors = new HashMap<>(); // by data file
    private Map<String, Listed> listed = new HashMap<>(); // by data file

    public DirectTable() throws ReflectiveOperationException {
        this.listWriter = Class.forName("org.apache.iceberg.ManifestLists", true, Table.class.getClassLoader())
                .getDeclaredMethod(
                        "write",
                        int.class,
                        OutputFile.class,
                        EncryptionManager.class,
                        long.class,
                        Long.class,
                        long.class,
                        Long.class);
        this.listWriter.setAccessible(true);
        this.nextRowId = listWriter.getReturnType().getMethod("nextRowId");
        this.nextRowId.setAccessible(true);
    }

    /**
     * Read the newest snapshot, and return it as JSON: its id (0 without one), the schema, the modes of metrics by column,
     * the fields of the partition spec, the number of manifests, and the data files with their partitions and vectors.
     * "refused" says what this class cannot write. Without the files, commits can only add some.
     */
    public String load(boolean withFiles) throws IOException {
        TableMetadata metadata = operations.current();
        Snapshot snapshot = metadata.currentSnapshot();
        FileIO io = operations.io();
        ObjectNode result = JSON.createObjectNode();
        String refused = refused(metadata);
        ArrayNode files = result.putArray("files");
        List<ManifestFile> read = snapshot == null ? List.of() : snapshot.allManifests(io);
        Map<String, Vector> found = new HashMap<>();
        Map<String, Listed> places = new HashMap<>();
        List<ManifestFile> ofFiles = refused == null && withFiles ? read : List.of();
        for (ManifestFile manifest : ofFiles) {
            if (manifest.content() != ManifestContent.DELETES) {
                continue;
            }
            try (ManifestReader<DeleteFile> reader = ManifestFiles.readDeleteManifest(manifest, io, metadata.specsById())) {
                for (DeleteFile file : reader) {
                    if (file.format() != FileFormat.PUFFIN || file.referencedDataFile() == null) {
                        refused = "it has deletes outside of deletion vectors";
                        break;
                    }
                    long sequence = file.fileSequenceNumber();
                    found.put(
                            file.referencedDataFile(),
                            new Vector(file.copy(), sequence, snapshotOf(metadata, sequence, manifest), manifest.path()));
                }
            }
        }
        for (ManifestFile manifest : refused == null ? ofFiles : List.<ManifestFile>of()) {
            if (manifest.content() != ManifestContent.DATA) {
                continue;
            }
            try (ManifestReader<DataFile> reader = ManifestFiles.read(manifest, io, metadata.specsById())) {
                for (DataFile file : reader) {
                    if (file.firstRowId() == null || file.format() != FileFormat.PARQUET) {
                        refused = "it has files without row ids, or of another format than Parquet";
                        break;
                    }
                    ObjectNode entry = files.addObject();
                    entry.put("path", file.location());
                    entry.put("size", file.fileSizeInBytes());
                    entry.put("rows", file.recordCount());
                    entry.put("first-row-id", file.firstRowId());
                    entry.put("sequence", file.dataSequenceNumber());
                    StructLike partition = file.copyWithoutStats().partition();
                    entry.set("partition", valuesOf(partition, metadata.spec()));
                    places.put(file.location(), new Listed(manifest.path(), partition));
                    Vector vector = found.get(file.location());
                    if (vector != null) {
                        entry.set("vector", locationOf(vector.file()));
                    }
                }
            }
        }
        known = snapshot == null ? 0 : snapshot.snapshotId();
        schema = metadata.currentSchemaId();
        manifests = read;
        vectors = found;
        listed = places;
        result.put("snapshot", known);
        result.put("manifests", read.size());
        result.set("partitioning", JSON.readTree(PartitionSpecParser.toJson(metadata.spec())).get("fields"));
        result.set("schema", JSON.readTree(SchemaParser.toJson(metadata.schema())));
        result.put("refused", refused);
        result.put(
                "compression",
                metadata.property(
                        TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT_SINCE_1_4_0));
        ObjectNode modes = result.putObject("metrics");
        MetricsConfig metrics = MetricsConfig.forTable(table);
        for (Types.NestedField column : metadata.schema().columns()) {
            modes.put(column.name(), metrics.columnMode(column.name()).toString());
        }
        return JSON.writeValueAsString(result);
    }

    private static ArrayNode valuesOf(StructLike partition, PartitionSpec spec) {
        ArrayNode values = JSON.createArrayNode();
        for (int index = 0; index < spec.fields().size(); index++) {
            Object value = partition.get(index, Object.class);
            values.add(value instanceof CharSequence ? JSON.valueToTree(value.toString()) : JSON.valueToTree(value));
        }
        return values;
    }

    private static PartitionData partition(JsonNode values, PartitionSpec spec) {
        PartitionData partition = new PartitionData(spec.partitionType());
        for (int index = 0; index < values.size(); index++) {
            JsonNode value = values.get(index);
            if (!value.isNull()) {
                partition.set(
                        index,
                        switch (spec.partitionType().fields().get(index).type().typeId()) {
                            case INTEGER, DATE -> value.intValue();
                            case LONG, TIMESTAMP -> value.longValue();
                            case BOOLEAN -> value.booleanValue();
                            default -> value.asText();
                        });
            }
        }
        return partition;
    }

    private static ObjectNode locationOf(DeleteFile vector) {
        ObjectNode location = JSON.createObjectNode();
        location.put("path", vector.location());
        location.put("offset", vector.contentOffset());
        location.put("size", vector.contentSizeInBytes());
        location.put("rows", vector.recordCount());
        return location;
    }

    private String refused(TableMetadata metadata) {
        if (metadata.formatVersion() != 3) {
            return "its format has another version than 3";
        }
        if (metadata.specs().size() != 1) {
            return "its files have different partition specs";
        }
        for (PartitionField field : metadata.spec().fields()) {
            Type source = metadata.schema().findType(field.sourceId());
            if (metadata.schema().asStruct().field(field.sourceId()) == null || !PARTITIONED.contains(source.typeId())) {
                return "Spark computes the values of its partitions";
            }
        }
        if (metadata.sortOrder().isSorted()) {
            return "it is sorted";
        }
        if (!metadata.property(TableProperties.DEFAULT_FILE_FORMAT, TableProperties.DEFAULT_FILE_FORMAT_DEFAULT)
                .equalsIgnoreCase("parquet")) {
            return "its files are not Parquet";
        }
        if (metadata.propertyAsBoolean(TableProperties.WRITE_AUDIT_PUBLISH_ENABLED, false)) {
            return "its commits are published later";
        }
        if (!(operations.encryption() instanceof PlaintextEncryptionManager)) {
            return "it is encrypted";
        }
        return null;
    }

    /** The snapshot that added a file, by the sequence number of the file. */
    private static long snapshotOf(TableMetadata metadata, long sequence, ManifestFile manifest) {
        for (Snapshot snapshot : metadata.snapshots()) {
            if (snapshot.sequenceNumber() == sequence) {
                return snapshot.snapshotId();
            }
        }
        return manifest.snapshotId(); // the snapshot has expired: nothing reads its id
    }

    /**
     * Use a table that was just loaded, and return the snapshot whose files are known, -1 if it is not the newest.
     *
     * <p>A table that was loaded earlier would not show that its folder was restored from a copy.
     */
    public long open(IcebergTable loaded) {
        table = loaded.table();
        operations = ((HasTableOperations) table).operations();
        return isKnown(operations.current()) ? known : -1;
    }

    private boolean isKnown(TableMetadata metadata) {
        Snapshot snapshot = metadata.currentSnapshot();
        return (snapshot == null ? 0 : snapshot.snapshotId()) == known && metadata.currentSchemaId() == schema;
    }

    /** Commit a request that is a file of this machine. */
    public String commitFile(String path) throws IOException, ReflectiveOperationException {
        return commit(Files.readAllBytes(Path.of(path)));
    }

    /**
     * Commit, and return the new snapshot as JSON: its id, sequence number and summary, and the locations of the new data
     * files with the first row id of the first.
     *
     * <p>The request is the length of a header (four bytes), the header as JSON, the data files without those that are
     * files of this machine, and the vectors. Files that the header names as "removed" are replaced by the data files,
     * which have "equal" rows if the header says so. Throws CommitFailedException if the table is not as known, and CommitStateUnknownException.
     */
    public String commit(byte[] request) throws IOException, ReflectiveOperationException {
        int length = ByteBuffer.wrap(request).getInt();
        JsonNode header = JSON.readTree(request, 4, length);
        TableMetadata base = operations.current();
        Snapshot parent = base.currentSnapshot();
        if (!isKnown(base) || refused(base) != null) {
            throw new CommitFailedException("The table is not as it was when its files were read");
        }
        Commit commit = new Commit(base, parent, header, request, 4 + length);
        try {
            commit.write();
            operations.commit(base, TableMetadata.buildFrom(base)
                    .setBranchSnapshot(commit.snapshot, SnapshotRef.MAIN_BRANCH)
                    .build());
        } catch (CommitStateUnknownException unknown) {
            throw unknown; // the commit may have succeeded, with these files
        } catch (IOException | ReflectiveOperationException | RuntimeException failure) {
            if (!operations.requireStrictCleanup() || failure instanceof CleanableFailure) {
                commit.removeFiles();
            }
            throw failure;
        }
        table = null; // the next commit opens it anew: metadata with all snapshots may take a megabyte of each table
        operations = null;
        known = commit.snapshot.snapshotId();
        manifests = commit.manifests;
        vectors = commit.vectors;
        listed = commit.listed;
        return JSON.writeValueAsString(commit.result);
    }

    /** One commit on top of {@code base}. */
    private final class Commit {
        private final TableMetadata base;
        private final Snapshot parent;
        private final JsonNode header;
        private final byte[] request;
        private final FileIO io = operations.io();
        private final PartitionSpec spec;
        private final long id = operations.newSnapshotId();
        private final String name = UUID.randomUUID().toString();
        private final List<String> written = new ArrayList<>();
        private final SnapshotSummary.Builder summary = SnapshotSummary.builder();
        private final ObjectNode result = JSON.createObjectNode();
        private int offset;
        private List<ManifestFile> manifests = new ArrayList<>();
        private Map<String, Vector> vectors = new HashMap<>(DirectTable.this.vectors);
        private Map<String, Listed> listed = new HashMap<>(DirectTable.this.listed);
        private Snapshot snapshot;

        Commit(TableMetadata base, Snapshot parent, JsonNode header, byte[] request, int offset) {
            this.base = base;
            this.parent = parent;
            this.header = header;
            this.request = request;
            this.offset = offset;
            this.spec = base.spec();
        }

        void write() throws IOException, ReflectiveOperationException {
            Set<String> replaced = new HashSet<>(); // manifests
            JsonNode data = header.get("data");
            Set<String> removed = new HashSet<>();
            header.get("removed").forEach(path -> removed.add(path.asText()));
            if (!data.isEmpty() || !removed.isEmpty()) {
                manifests.add(writeData(data, removed, replaced));
            }
            if (!header.get("vectors").isEmpty() || removed.stream().anyMatch(vectors::containsKey)) {
                manifests.add(writeVectors(removed, replaced));
            }
            int added = manifests.size();
            for (ManifestFile manifest : DirectTable.this.manifests) {
                // A manifest with entries of removed files alone is of interest to its own snapshot only.
                if (!replaced.contains(manifest.path()) && (manifest.hasAddedFiles() || manifest.hasExistingFiles())) {
                    manifests.add(manifest);
                }
            }
            String list = operations.metadataFileLocation(
                    FileFormat.AVRO.addExtension("snap-" + id + "-1-" + name));
            long rows = writeList(list);
            assign(manifests.subList(0, added));
            snapshot = SnapshotParser.fromJson(snapshotJson(list, rows));
        }

        /**
         * Write the files, and one manifest with them, in place of those that contain the removed files. Iceberg numbers the
         * rows of the files in their order; the other rows of the manifest have their numbers.
         */
        private ManifestFile writeData(JsonNode data, Set<String> removed, Set<String> replaced) throws IOException {
            for (String path : removed) {
                replaced.add(listed.remove(path).manifest());
            }
            OutputFile output = manifest(0);
            ManifestWriter<DataFile> writer = ManifestFiles.write(base.formatVersion(), spec, output, id);
            try (writer) {
                writeFiles(data, writer, output.location());
                for (ManifestFile manifest : DirectTable.this.manifests) {
                    if (replaced.contains(manifest.path())) {
                        copy(manifest, removed, writer, output.location());
                    }
                }
            }
            return writer.toManifestFile();
        }

        private void writeFiles(JsonNode data, ManifestWriter<DataFile> writer, String output) throws IOException {
            ArrayNode locations = result.putArray("files");
            result.put("first-row-id", base.nextRowId());
            for (JsonNode entry : data) {
                PartitionData partition = partition(entry.get("partition"), spec);
                String file = name + (locations.isEmpty() ? "" : "-" + locations.size()) + ".parquet";
                String location = spec.isPartitioned()
                        ? table.locationProvider().newDataLocation(spec, partition, file)
                        : table.locationProvider().newDataLocation(file);
                store(location, entry);
                DataFile added = DataFiles.builder(spec)
                        .withPath(location)
                        .withFormat(FileFormat.PARQUET)
                        .withFileSizeInBytes(entry.get("size").asLong())
                        .withPartition(partition)
                        .withMetrics(metrics(entry))
                        .withSplitOffsets(JSON.convertValue(entry.get("row-groups"), OFFSETS))
                        .build();
                summary.addedFile(spec, added);
                locations.add(location);
                listed.put(location, new Listed(output, partition));
                writer.add(added);
            }
        }

        private void copy(ManifestFile manifest, Set<String> removed, ManifestWriter<DataFile> writer, String output)
                throws IOException {
            try (ManifestReader<DataFile> reader = ManifestFiles.read(manifest, io, base.specsById())) {
                for (DataFile entry : reader) {
                    DataFile file = entry.copy();
                    long sequence = entry.dataSequenceNumber();
                    if (removed.contains(file.location())) {
                        writer.delete(file, sequence, entry.fileSequenceNumber());
                        summary.deletedFile(spec, file);
                    } else {
                        long added = snapshotOf(base, entry.fileSequenceNumber(), manifest);
                        writer.existing(file, added, sequence, entry.fileSequenceNumber());
                        listed.put(file.location(), new Listed(output, file.partition()));
                    }
                }
            }
        }

        /** Write new vectors, and one manifest in place of those with the vectors that they replace or that are removed. */
        private ManifestFile writeVectors(Set<String> removed, Set<String> replaced) throws IOException {
            List<DeleteFile> news = header.get("vectors").isEmpty() ? List.of() : writePuffin();
            List<Vector> olds = new ArrayList<>();
            Set<String> covered = new HashSet<>(removed);
            news.forEach(file -> covered.add(file.referencedDataFile()));
            for (String path : covered) {
                Vector old = vectors.remove(path);
                if (old != null) {
                    olds.add(old);
                    replaced.add(old.manifest());
                    summary.deletedFile(spec, old.file());
                }
            }
            OutputFile output = manifest(1);
            ManifestWriter<DeleteFile> writer =
                    ManifestFiles.writeDeleteManifest(base.formatVersion(), spec, output, id);
            try (writer) {
                for (DeleteFile file : news) {
                    writer.add(file);
                    vectors.put(file.referencedDataFile(), new Vector(file, base.nextSequenceNumber(), id, output.location()));
                }
                for (Map.Entry<String, Vector> entry : vectors.entrySet()) {
                    Vector kept = entry.getValue();
                    if (replaced.contains(kept.manifest())) {
                        writer.existing(kept.file(), kept.snapshot(), kept.sequence(), kept.sequence());
                        entry.setValue(new Vector(kept.file(), kept.sequence(), kept.snapshot(), output.location()));
                    }
                }
                // Expiry finds files by these entries, and deletes them: a Puffin file with its last vector, not before.
                Set<String> used = new HashSet<>();
                vectors.values().forEach(vector -> used.add(vector.file().location()));
                for (Vector old : olds) {
                    if (!used.contains(old.file().location())) {
                        writer.delete(old.file(), old.sequence(), old.sequence());
                    }
                }
            }
            return writer.toManifestFile();
        }

        private List<DeleteFile> writePuffin() throws IOException {
            String location = table.locationProvider().newDataLocation(name + "-deletes.puffin");
            List<BlobMetadata> blobs = new ArrayList<>();
            written.add(location);
            PuffinWriter puffin =
                    Puffin.write(io.newOutputFile(location)).createdBy("Headrace").build();
            try (puffin) {
                for (JsonNode vector : header.get("vectors")) {
                    int size = vector.get("size").asInt();
                    blobs.add(puffin.write(new Blob(
                            VECTOR,
                            List.of(ROW_POSITION),
                            -1,
                            -1,
                            ByteBuffer.wrap(request, offset, size),
                            null,
                            Map.of(
                                    "referenced-data-file",
                                    vector.get("file").asText(),
                                    "cardinality",
                                    vector.get("rows").asText()))));
                    offset += size;
                }
            }
            ArrayNode stored = result.putArray("vectors");
            List<DeleteFile> news = new ArrayList<>();
            for (int index = 0; index < blobs.size(); index++) {
                JsonNode vector = header.get("vectors").get(index);
                String data = vector.get("file").asText();
                DeleteFile file = FileMetadata.deleteFileBuilder(spec)
                        .ofPositionDeletes()
                        .withPartition(listed.get(data).partition())
                        .withFormat(FileFormat.PUFFIN)
                        .withPath(location)
                        .withFileSizeInBytes(puffin.fileSize())
                        .withReferencedDataFile(data)
                        .withContentOffset(blobs.get(index).offset())
                        .withContentSizeInBytes(blobs.get(index).length())
                        .withRecordCount(vector.get("rows").asLong())
                        .build();
                news.add(file);
                summary.addedFile(spec, file);
                stored.add(locationOf(file));
            }
            return news;
        }

        /** Write the manifest list, and return how many rows it has given an id. */
        @SuppressWarnings("unchecked")
        private long writeList(String location) throws IOException, ReflectiveOperationException {
            written.add(location);
            FileAppender<ManifestFile> writer = (FileAppender<ManifestFile>) listWriter.invoke(
                    null,
                    base.formatVersion(),
                    io.newOutputFile(location),
                    operations.encryption(),
                    id,
                    parent == null ? null : parent.snapshotId(),
                    base.nextSequenceNumber(),
                    base.nextRowId());
            try (writer) {
                writer.addAll(manifests);
            }
            return (Long) nextRowId.invoke(writer) - base.nextRowId();
        }

        private String snapshotJson(String list, long rows) throws IOException {
            ObjectNode json = JSON.createObjectNode();
            json.put("sequence-number", base.nextSequenceNumber());
            json.put("snapshot-id", id);
            if (parent != null) {
                json.put("parent-snapshot-id", parent.snapshotId());
            }
            json.put("timestamp-ms", Math.max(System.currentTimeMillis(), base.lastUpdatedMillis()));
            Map<String, String> all = summarize();
            ObjectNode properties = json.putObject("summary");
            properties.put("operation", operation());
            all.forEach(properties::put);
            json.put("manifest-list", list);
            json.put("schema-id", base.currentSchemaId());
            json.put("first-row-id", base.nextRowId());
            json.put("added-rows", rows);
            result.put("snapshot", id);
            result.put("sequence", base.nextSequenceNumber());
            result.set("summary", JSON.valueToTree(all));
            return JSON.writeValueAsString(json);
        }

        private String operation() {
            if (header.get("equal").asBoolean()) {
                return DataOperations.REPLACE;
            }
            if (header.get("vectors").isEmpty() && header.get("removed").isEmpty()) {
                return DataOperations.APPEND;
            }
            return header.get("data").isEmpty() ? DataOperations.DELETE : DataOperations.OVERWRITE;
        }

        private Map<String, String> summarize() {
            header.get("properties").properties().forEach(entry -> summary.set(
                    entry.getKey(), entry.getValue().asText()));
            Map<String, String> all = new HashMap<>(summary.build());
            Map<String, String> before = parent == null ? Map.of() : parent.summary();
            for (String[] total : TOTALS) {
                String last = parent == null ? "0" : before.get(total[0]);
                if (last != null) { // another writer may have omitted it
                    long sum = Long.parseLong(last)
                            + Long.parseLong(all.getOrDefault(total[1], "0"))
                            - Long.parseLong(all.getOrDefault(total[2], "0"));
                    all.put(total[0], Long.toString(sum));
                }
            }
            all.putAll(EnvironmentContext.get());
            return all;
        }

        private OutputFile manifest(int number) {
            String location = operations.metadataFileLocation(FileFormat.AVRO.addExtension(name + "-m" + number));
            written.add(location);
            return io.newOutputFile(location);
        }

        /** Set what Iceberg sets when it writes and reads a list, so that this list need not be read. */
        private void assign(List<ManifestFile> added) {
            long rows = base.nextRowId();
            for (ManifestFile manifest : added) {
                GenericManifestFile listed = (GenericManifestFile) manifest;
                set(listed, ManifestFile.SEQUENCE_NUMBER, base.nextSequenceNumber());
                if (manifest.minSequenceNumber() < 0) { // it has no files of earlier snapshots
                    set(listed, ManifestFile.MIN_SEQUENCE_NUMBER, base.nextSequenceNumber());
                }
                if (manifest.content() == ManifestContent.DATA) {
                    set(listed, ManifestFile.FIRST_ROW_ID, rows);
                    rows += manifest.addedRowsCount() + manifest.existingRowsCount();
                }
            }
        }

        private static void set(GenericManifestFile manifest, Types.NestedField field, Object value) {
            manifest.put(ManifestFile.schema().columns().indexOf(field), value);
        }

        private Metrics metrics(JsonNode data) {
            Map<Integer, Long> sizes = new HashMap<>();
            Map<Integer, Long> values = new HashMap<>();
            Map<Integer, Long> nulls = new HashMap<>();
            Map<Integer, ByteBuffer> lower = new HashMap<>();
            Map<Integer, ByteBuffer> upper = new HashMap<>();
            data.get("columns").properties().forEach(entry -> {
                int column = Integer.parseInt(entry.getKey());
                JsonNode metric = entry.getValue();
                sizes.put(column, metric.get("size").asLong());
                values.put(column, metric.get("values").asLong());
                nulls.put(column, metric.get("nulls").asLong());
                if (metric.has("lower")) {
                    lower.put(column, bytes(metric.get("lower")));
                }
                if (metric.has("upper")) {
                    upper.put(column, bytes(metric.get("upper")));
                }
            });
            return new Metrics(data.get("rows").asLong(), sizes, values, nulls, Map.of(), lower, upper);
        }

        private static ByteBuffer bytes(JsonNode hex) {
            return ByteBuffer.wrap(HexFormat.of().parseHex(hex.asText()));
        }

        /** Write a data file, from a file of this machine if the request names one. */
        private void store(String location, JsonNode entry) throws IOException {
            written.add(location);
            try (PositionOutputStream stream = io.newOutputFile(location).create()) {
                if (entry.has("file")) {
                    Files.copy(Path.of(entry.get("file").asText()), stream);
                } else {
                    int size = entry.get("size").asInt();
                    stream.write(request, offset, size);
                    offset += size;
                }
            }
        }

        private void removeFiles() {
            for (String location : written) {
                try {
                    io.deleteFile(location);
                } catch (RuntimeException ignored) {
                    // It may not exist, and nothing refers to it: weekly upkeep removes what nothing refers to.
                }
            }
        }
    }
}
