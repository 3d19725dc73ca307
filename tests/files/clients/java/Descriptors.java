import java.util.List;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.Descriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FieldDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FileDescriptor;

/** The fields of all messages in the jars: message, number, label and type. */
public class Descriptors {
    static final String[] FILES = {
        "org.apache.hadoop.ipc.protobuf.RpcHeaderProtos", "org.apache.hadoop.ipc.protobuf.IpcConnectionContextProtos",
        "org.apache.hadoop.ipc.protobuf.ProtobufRpcEngine2Protos", "org.apache.hadoop.security.proto.SecurityProtos",
        "org.apache.hadoop.hdfs.protocol.proto.AclProtos", "org.apache.hadoop.hdfs.protocol.proto.XAttrProtos", "org.apache.hadoop.hdfs.protocol.proto.HdfsProtos",
        "org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos", "org.apache.hadoop.hdfs.protocol.proto.ClientDatanodeProtocolProtos",
        "org.apache.hadoop.hdfs.protocol.proto.ClientNamenodeProtocolProtos", "org.apache.hadoop.hdfs.protocol.proto.EncryptionZonesProtos",
        "org.apache.hadoop.hdfs.protocol.proto.HdfsServerProtos", "org.apache.hadoop.hdfs.protocol.proto.DatanodeProtocolProtos",
        "org.apache.hadoop.hdfs.protocol.proto.InterDatanodeProtocolProtos",
    };

    public static void main(String[] none) throws Exception {
        for (String file : FILES) {
            print("", ((FileDescriptor) Class.forName(file).getMethod("getDescriptor").invoke(null)).getMessageTypes());
        }
    }

    static void print(String outer, List<Descriptor> messages) {
        for (Descriptor message : messages) {
            String name = outer + message.getName();
            System.out.println(name);
            for (FieldDescriptor field : message.getFields()) {
                String label = field.isRequired() ? "required" : field.isRepeated() ? "repeated" : "optional";
                System.out.println(name + " " + field.getNumber() + " " + label + " " + field.getType().toString().toLowerCase());
            }
            print(name + ".", message.getNestedTypes());
        }
    }
}
