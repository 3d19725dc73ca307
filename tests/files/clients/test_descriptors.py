"""The messages that are written by hand are those of Hadoop's jars: each field has the number, label and type that it has there."""

import re
import subprocess

from test_hadoop import HERE, ROOT, jars  # noqa: F401 # a fixture

WIRE = ROOT / "faces" / "hadoop" / "src" / "wire"
# Messages that have other names here, because they have one field.
SIMPLE = {
    "Flag": ["CompleteResponseProto", "RenameResponseProto", "DeleteResponseProto", "MkdirsResponseProto", "SetReplicationResponseProto",
             "RecoverLeaseResponseProto", "TruncateResponseProto", "IsFileClosedResponseProto", "SetSafeModeResponseProto"],
    "Number": ["GetPreferredBlockSizeResponseProto", "GetReplicaVisibleLengthResponseProto"],
    "Text": ["MetaSaveRequestProto", "GetFileInfoRequestProto", "GetFileLinkInfoRequestProto", "IsFileClosedRequestProto", "GetPreferredBlockSizeRequestProto",
             "RenewLeaseRequestProto", "GetContentSummaryRequestProto", "GetQuotaUsageRequestProto", "GetStoragePolicyRequestProto", "ListXAttrsRequestProto", "UnsetStoragePolicyRequestProto",
             "RemoveAclRequestProto", "RemoveDefaultAclRequestProto", "GetAclStatusRequestProto"],
    "One": ["GetFileInfoResponseProto", "GetListingResponseProto", "GetBlockLocationsResponseProto", "CreateResponseProto", "AddBlockResponseProto",
            "GetServerDefaultsResponseProto", "GetContentSummaryResponseProto", "GetAdditionalDatanodeResponseProto",
            "UpdateBlockForPipelineResponseProto", "GetReplicaVisibleLengthRequestProto", "GetLocatedFileInfoResponseProto", "GetQuotaUsageResponseProto", "GetStoragePolicyResponseProto",
            "GetAclStatusResponseProto"],
    "Nothing": ["BlockReceivedAndDeletedResponseProto", "ErrorReportResponseProto", "CommitBlockSynchronizationResponseProto", "MetaSaveResponseProto", "GetFsReplicatedBlockStatsRequestProto", "GetFsECBlockGroupStatsRequestProto", "GetSlowDatanodeReportRequestProto", "Rename2ResponseProto", "FsyncResponseProto", "RenewLeaseResponseProto", "SetPermissionResponseProto", "SetOwnerResponseProto",
                "SetTimesResponseProto", "AbandonBlockResponseProto", "ReportBadBlocksResponseProto", "UpdatePipelineResponseProto",
                "CheckAccessResponseProto", "ConcatResponseProto", "GetEZForPathResponseProto", "SetQuotaResponseProto",
                "SetXAttrResponseProto", "RemoveXAttrResponseProto", "SetStoragePolicyResponseProto", "UnsetStoragePolicyResponseProto",
                "SetAclResponseProto", "ModifyAclEntriesResponseProto", "RemoveAclEntriesResponseProto", "RemoveDefaultAclResponseProto", "RemoveAclResponseProto"],
}
# Fields that Hadoop requires and nobody reads here, of messages that only come: one that is sent has all of them.
NOT_READ = {"GetAdditionalDatanodeRequestProto": [6]}
STRUCT = re.compile(r"((?:///[^\n]*\n)*)#\[derive\([^)]*Message\)\]\npub\(crate\) struct (\w+)[^{]*\{(.*?)\}\n", re.DOTALL)
FIELD = re.compile(r'#\[prost\((.*?), tag = "(\d+)"\)\]')


def ours():
    """The fields of each message here: by the names that it has in Hadoop."""
    for file in WIRE.glob("*.rs"):
        for words, struct, body in STRUCT.findall(file.read_text()):
            names = [name.removeprefix("hadoop.common.") for name in re.findall(r"`([\w.]*Proto(?:\.\w+)?)`", words)]
            fields = {}
            for attributes, number in FIELD.findall(body):
                kind = re.match(r"\w+", attributes)[0]
                label = next(label for label in ("required", "optional", "repeated") if label in attributes)
                fields[int(number)] = (label, kind)
            assert len(fields) == body.count("pub(crate)"), struct
            assert names or struct in SIMPLE, f"{struct} says no message of Hadoop"
            yield from ((name, struct, fields) for name in names or SIMPLE[struct])


def test_messages_are_those_of_hadoop(jars):  # noqa: F811 # the fixture
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", HERE / "Descriptors.java"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    theirs = {}
    for line in said.splitlines():
        name, *field = line.split()
        fields = theirs.setdefault(name, {})
        if field:
            fields[int(field[0])] = (field[1], field[2])
    compared = 0
    for name, struct, fields in ours():
        for number, (label, kind) in fields.items():
            their_label, their_kind = theirs[name][number]
            is_same = kind == their_kind or (their_kind == "enum" and kind in ("int32", "uint32"))
            # What is there or not is asked where a message stands for several.
            is_labelled = label == their_label or (struct == "One" and their_label == "required")
            assert is_same and is_labelled, f"{name}.{number}: {label} {kind}, in Hadoop {their_label} {their_kind}"
            compared += 1
        missing = [number for number, (label, _) in theirs[name].items() if label == "required" and number not in fields]
        assert missing == NOT_READ.get(name, []), f"{name} leaves out {missing}, which Hadoop requires"
    assert compared > 150, "it compares something"
