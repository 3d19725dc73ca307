package org.apache.hadoop.hdfs;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** In the place of Hadoop's cluster in the process: the one that the configuration names. */
public class MiniDFSCluster {
    private final Configuration conf;

    public MiniDFSCluster(Configuration conf) {
        this.conf = conf;
    }

    public DistributedFileSystem getFileSystem() throws IOException {
        return (DistributedFileSystem) FileSystem.get(conf);
    }
}
