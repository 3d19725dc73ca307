package org.apache.hadoop.fs.contract.hdfs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.AbstractFSContractTestBase;
import org.apache.hadoop.fs.contract.ContractOptions;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** In the place of Hadoop's class of this name, which begins a cluster for each class of tests: here there is one already. */
public class HDFSContract extends AbstractFSContract {
    public static final int BLOCK_SIZE = AbstractFSContractTestBase.TEST_FILE_LEN;
    private static final String SAYS = "contract/hdfs.xml";
    private static MiniDFSCluster cluster;

    public HDFSContract(Configuration conf) {
        super(conf);
        addConfResource(SAYS);
    }

    public static void createCluster() throws IOException {
        HdfsConfiguration conf = new HdfsConfiguration();
        conf.addResource(SAYS);
        conf.setInt("dfs.blocksize", BLOCK_SIZE);
        cluster = new MiniDFSCluster(conf);
    }

    public static void destroyCluster() throws IOException {
        cluster = null;
    }

    public static MiniDFSCluster getCluster() {
        return cluster;
    }

    @Override
    public void init() throws IOException {
        super.init();
        assertTrue(isSupported(ContractOptions.IS_CASE_SENSITIVE, false), SAYS + " was not read");
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return cluster.getFileSystem();
    }

    @Override
    public String getScheme() {
        return "hdfs";
    }

    @Override
    public Path getTestPath() {
        return new Path("/test");
    }
}
