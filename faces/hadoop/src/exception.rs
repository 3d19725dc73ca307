//! What refusals are called in Java: clients make the exception of that name.

use savanna_files_host::Class;

pub(crate) const RPC_SERVER: &str = "org.apache.hadoop.ipc.RpcServerException";
pub(crate) const VERSION_MISMATCH: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";
pub(crate) const AUTHORIZATION: &str = "org.apache.hadoop.security.authorize.AuthorizationException";
pub(crate) const NO_SUCH_METHOD: &str = "org.apache.hadoop.ipc.RpcNoSuchMethodException";
pub(crate) const NO_SUCH_PROTOCOL: &str = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";
pub(crate) const UNSUPPORTED: &str = "java.lang.UnsupportedOperationException";

pub(crate) const DISALLOWED_NODE: &str = "org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException";
pub(crate) const INCORRECT_VERSION: &str = "org.apache.hadoop.hdfs.server.common.IncorrectVersionException";
pub(crate) const IO: &str = "java.io.IOException";

/// The class of a refusal.
pub(crate) const fn class(class: Class) -> &'static str {
    match class {
        Class::FileNotFound => "java.io.FileNotFoundException",
        Class::ParentNotDirectory => "org.apache.hadoop.fs.ParentNotDirectoryException",
        Class::PathIsNotDirectory => "org.apache.hadoop.fs.PathIsNotDirectoryException",
        Class::FileAlreadyExists => "org.apache.hadoop.fs.FileAlreadyExistsException",
        Class::PathIsNotEmptyDirectory => "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException",
        Class::InvalidPath => "org.apache.hadoop.fs.InvalidPathException",
        Class::NameTooLong => "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
        Class::DirectoryFull => "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException",
        Class::NamesQuota => "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException",
        Class::SpaceQuota => "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
        Class::AccessControl => "org.apache.hadoop.security.AccessControlException",
        Class::Acl => "org.apache.hadoop.hdfs.protocol.AclException",
        Class::AlreadyBeingCreated => "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException",
        Class::RecoveryInProgress => "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException",
        Class::LeaseExpired => "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException",
        Class::NotReplicatedYet => "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException",
        Class::SafeMode => "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        Class::IllegalArgument => "org.apache.hadoop.HadoopIllegalArgumentException",
        Class::Unsupported => UNSUPPORTED,
        Class::Retriable => "org.apache.hadoop.ipc.RetriableException",
        Class::ReportLease => "org.apache.hadoop.hdfs.server.protocol.InvalidBlockReportLeaseException",
        Class::Standby => "org.apache.hadoop.ipc.StandbyException",
        Class::Io => IO,
    }
}
