package failpoint

// The points, in the order in which they are listed. A test checks that each is used, and that each use is here.
const (
	// A server's disk: bytes of chunks.
	ChunkInPlaceBefore Point = iota
	ChunkInPlaceAfter
	ChunkSegmentBefore
	ChunkSegmentAfter
	ChunkSegmentMade
	ChunkSpareTaken
	ChunkSyncBefore
	ChunkSyncAfter
	ChunkNamesBefore
	ChunkNamesAfter
	ChunkNumbersBefore
	ChunkNumbersAfter
	ChunkFillBefore
	ChunkFillAfter
	ChunkTrailerBefore
	ChunkTrailerAfter
	ChunkAdoptBefore
	ChunkAdoptAfter
	ChunkRecycleBefore
	ChunkRecycleAfter
	ChunkUnlinkBefore
	ChunkUnlinkAfter
	ChunkLoaded
	ChunkStarted
	// The log.
	LogAppendBefore
	LogWritten
	LogSynced
	LogAppendAfter
	LogSegmentMade
	LogSegmentKnown
	LogMetaBefore
	LogMetaAfter
	LogMarkerBefore
	LogMarkerAfter
	LogCutBefore
	LogCutAfter
	LogOpened
	// Rows.
	ApplyBefore
	ApplyRows
	ApplyAfter
	RowsFlushBefore
	RowsFlushAfter
	FreeBefore
	// Transactions.
	StageReceived
	StageWritten
	StageRemembered
	ResultLogged
	PrepareReceived
	PrepareSynced
	PrepareLogged
	PrepareSent
	CommitBefore
	CommitLogged
	CommitTelling
	CommitTold
	EndLogged
	AbortTelling
	DecideReceived
	DecideLogged
	QueryAsking
	QueryAnswered
	QueryReceived
	RecoverBegun
	RecoverPromises
	RecoverDone
	// Replies.
	ReplyBefore
	ReplyPeerBefore
	// To S3.
	IntentBefore
	IntentLogged
	BeginBefore
	BeginLogged
	PartsSent
	DoneBefore
	DoneLogged
	TrashClaimed
	TrashBefore
	TrashSettled
	TableBefore
	TableAfter
	DirMoveBefore
	DirMoveAfter
	PageBefore
	PageAfter
	// Each attempt of a request to S3.
	S3ListBefore
	S3ListAfter
	S3HeadBefore
	S3HeadAfter
	S3GetBefore
	S3GetAfter
	S3PutBefore
	S3PutAfter
	S3CopyBefore
	S3CopyAfter
	S3DeleteBefore
	S3DeleteAfter
	S3CreateUploadBefore
	S3CreateUploadAfter
	S3UploadPartBefore
	S3UploadPartAfter
	S3CopyPartBefore
	S3CopyPartAfter
	S3CompleteUploadBefore
	S3CompleteUploadAfter
	S3AbortUploadBefore
	S3AbortUploadAfter
	S3ListUploadsBefore
	S3ListUploadsAfter
	// A server's start.
	StartIdentity
	StartRows
	StartServing
	// A mount.
	CacheWriteBefore
	CacheWriteAfter
	CacheNoted
	SidecarReplaced
	MountStageAfter
	MountFlushBefore
	MountFlushAfter
	MountFlushNoted
	MountAppendAfter
	MountNamed
	MountRecoverBefore
	MountRecoverAfter

	count = iota
)

var table = [count]Info{
	ChunkInPlaceBefore:     {"chunk.inplace.before", Server, "the blocks are allocated in the chunk's file, the bytes not written"},
	ChunkInPlaceAfter:      {"chunk.inplace.after", Server, "the bytes are written in place, not synced"},
	ChunkSegmentBefore:     {"chunk.segment.before", Server, "a place in the second-level log is taken, the bytes not written"},
	ChunkSegmentAfter:      {"chunk.segment.after", Server, "the bytes are written to the second-level log, not synced"},
	ChunkSegmentMade:       {"chunk.segment.made", Server, "a new segment is allocated, its name not synced"},
	ChunkSpareTaken:        {"chunk.spare.taken", Server, "a recycled segment is about to be appended to"},
	ChunkSyncBefore:        {"chunk.sync.before", Server, "written bytes of one file, fdatasync not begun"},
	ChunkSyncAfter:         {"chunk.sync.after", Server, "fdatasync of one file is done, nobody told"},
	ChunkNamesBefore:       {"chunk.names.before", Server, "all files of the round are synced, the directory is not"},
	ChunkNamesAfter:        {"chunk.names.after", Server, "files and directory are synced, nobody told"},
	ChunkNumbersBefore:     {"chunk.numbers.before", Server, "new file numbers are written aside, not renamed"},
	ChunkNumbersAfter:      {"chunk.numbers.after", Server, "new file numbers are durable, none used"},
	ChunkFillBefore:        {"chunk.fill.before", Server, "clean bytes have arrived from S3, the cache file not written"},
	ChunkFillAfter:         {"chunk.fill.after", Server, "clean bytes are in the cache file, no trailer names them"},
	ChunkTrailerBefore:     {"chunk.trailer.before", Server, "a clean file's trailer is about to be written"},
	ChunkTrailerAfter:      {"chunk.trailer.after", Server, "a clean file's trailer is written, not synced"},
	ChunkAdoptBefore:       {"chunk.adopt.before", Server, "uploaded bytes are about to become clean ones"},
	ChunkAdoptAfter:        {"chunk.adopt.after", Server, "uploaded bytes have become a clean file"},
	ChunkRecycleBefore:     {"chunk.recycle.before", Server, "a dead segment is about to be renamed for its next use"},
	ChunkRecycleAfter:      {"chunk.recycle.after", Server, "a dead segment is renamed, the directory not synced"},
	ChunkUnlinkBefore:      {"chunk.unlink.before", Server, "a dead or evicted file is about to be unlinked"},
	ChunkUnlinkAfter:       {"chunk.unlink.after", Server, "a dead or evicted file is unlinked, its bytes still counted"},
	ChunkLoaded:            {"chunk.loaded", ServerStart, "the files of an earlier life are found, nobody has said which are in use"},
	ChunkStarted:           {"chunk.started", ServerStart, "the files in use are known, the rest is about to go"},
	LogAppendBefore:        {"log.append.before", Server, "entries are about to be appended"},
	LogWritten:             {"log.written", Server, "entries are written to the log's file, fdatasync not begun"},
	LogSynced:              {"log.synced", Server, "fdatasync of the log's file is done"},
	LogAppendAfter:         {"log.append.after", Server, "entries are durable, not applied"},
	LogSegmentMade:         {"log.segment.made", Server, "a new file of the log is on disk, not known to be"},
	LogSegmentKnown:        {"log.segment.known", Server, "a new file of the log is known, nothing appended"},
	LogMetaBefore:          {"log.meta.before", Server, "the log's list of files or the term is about to be replaced"},
	LogMetaAfter:           {"log.meta.after", Server, "the log's list of files or the term is replaced"},
	LogMarkerBefore:        {"log.marker.before", Server, "rows are durable, the marker that says so is not"},
	LogMarkerAfter:         {"log.marker.after", Server, "the marker is durable, the log before it not cut"},
	LogCutBefore:           {"log.cut.before", Server, "the log is about to be cut"},
	LogCutAfter:            {"log.cut.after", Server, "the log is cut"},
	LogOpened:              {"log.opened", ServerStart, "the log is open and verified, nothing applied"},
	ApplyBefore:            {"apply.before", Server, "an entry is committed, about to be applied"},
	ApplyRows:              {"apply.rows", Server, "an entry's rows are in memory, freed places not given back"},
	ApplyAfter:             {"apply.after", Server, "an entry is applied, its proposer not told"},
	RowsFlushBefore:        {"rows.flush.before", Server, "rows are about to be made durable (Pebble)"},
	RowsFlushAfter:         {"rows.flush.after", Server, "rows are durable, freed places not yet free"},
	FreeBefore:             {"free.before", Server, "dead places are about to be given back to the chunk store"},
	StageReceived:          {"stage.received", Server, "staged bytes have arrived"},
	StageWritten:           {"stage.written", Server, "staged bytes are written, not remembered"},
	StageRemembered:        {"stage.remembered", Server, "staged bytes are remembered, not answered"},
	ResultLogged:           {"result.logged", Server, "effects and result of a request are logged, not answered"},
	PrepareReceived:        {"prepare.received", Server, "participant: a Prepare has arrived"},
	PrepareSynced:          {"prepare.synced", Server, "participant: its bytes are synced, PREPARE not logged"},
	PrepareLogged:          {"prepare.logged", Server, "participant: PREPARE is logged, not answered"},
	PrepareSent:            {"prepare.sent", Server, "coordinator: a participant has answered yes or no"},
	CommitBefore:           {"commit.before", Server, "coordinator: all said yes, COMMIT not logged"},
	CommitLogged:           {"commit.logged", Server, "coordinator: COMMIT is logged, nobody told"},
	CommitTelling:          {"commit.telling", Server, "coordinator: one participant is about to be told"},
	CommitTold:             {"commit.told", Server, "coordinator: one participant has said that it has COMMIT"},
	EndLogged:              {"end.logged", Server, "coordinator: END is logged"},
	AbortTelling:           {"abort.telling", Server, "coordinator: a participant is about to be told of the abort"},
	DecideReceived:         {"decide.received", Server, "participant: the decision has arrived"},
	DecideLogged:           {"decide.logged", Server, "participant: COMMIT or ABORT is logged, locks still held"},
	QueryAsking:            {"query.asking", Server, "participant: in doubt, about to ask the coordinator"},
	QueryAnswered:          {"query.answered", Server, "participant: the coordinator has said what became of it"},
	QueryReceived:          {"query.received", Server, "coordinator: asked what became of a transaction"},
	RecoverBegun:           {"recover.begun", ServerStart, "the log is replayed, memory not restored"},
	RecoverPromises:        {"recover.promises", ServerStart, "locks of promises are held again, decisions not told"},
	RecoverDone:            {"recover.done", ServerStart, "the group is restored, not serving"},
	ReplyBefore:            {"reply.before", Server, "a mount's or server's request is done, the reply not sent"},
	ReplyPeerBefore:        {"reply.peer.before", Server, "another group's Prepare, Decide or Query is done, the reply not sent"},
	IntentBefore:           {"intent.before", Server, "an object is about to be written, INTENT not logged"},
	IntentLogged:           {"intent.logged", Server, "INTENT is logged, nothing sent"},
	BeginBefore:            {"begin.before", Server, "a multipart upload is created, its id not logged (BEGIN)"},
	BeginLogged:            {"begin.logged", Server, "BEGIN is logged, no part sent"},
	PartsSent:              {"parts.sent", Server, "all parts are uploaded, the upload not completed"},
	DoneBefore:             {"done.before", Server, "the object is in S3, DONE not logged"},
	DoneLogged:             {"done.logged", Server, "DONE is logged"},
	TrashClaimed:           {"trash.claimed", Server, "a lost name is claimed, its object not deleted"},
	TrashBefore:            {"trash.before", Server, "the object of a lost name is deleted, the name not settled"},
	TrashSettled:           {"trash.settled", Server, "a lost name is settled"},
	TableBefore:            {"table.before", Server, "a directory's table is about to be written"},
	TableAfter:             {"table.after", Server, "a directory's table is in S3, not noted"},
	DirMoveBefore:          {"dir.move.before", Server, "a renamed directory's object is about to be copied"},
	DirMoveAfter:           {"dir.move.after", Server, "a renamed directory has arrived, not noted"},
	PageBefore:             {"page.before", Server, "a page of a listing is about to be merged"},
	PageAfter:              {"page.after", Server, "a page of a listing is merged"},
	S3ListBefore:           {"s3.list.before", Server, "List is about to be sent"},
	S3ListAfter:            {"s3.list.after", Server, "List is answered"},
	S3HeadBefore:           {"s3.head.before", Server, "Head is about to be sent"},
	S3HeadAfter:            {"s3.head.after", Server, "Head is answered"},
	S3GetBefore:            {"s3.get.before", Server, "Get is about to be sent"},
	S3GetAfter:             {"s3.get.after", Server, "Get is answered; its body not read"},
	S3PutBefore:            {"s3.put.before", Server, "Put is about to be sent"},
	S3PutAfter:             {"s3.put.after", Server, "Put is answered"},
	S3CopyBefore:           {"s3.copy.before", Server, "Copy is about to be sent"},
	S3CopyAfter:            {"s3.copy.after", Server, "Copy is answered"},
	S3DeleteBefore:         {"s3.delete.before", Server, "Delete is about to be sent"},
	S3DeleteAfter:          {"s3.delete.after", Server, "Delete is answered"},
	S3CreateUploadBefore:   {"s3.create-upload.before", Server, "CreateUpload is about to be sent"},
	S3CreateUploadAfter:    {"s3.create-upload.after", Server, "CreateUpload is answered"},
	S3UploadPartBefore:     {"s3.upload-part.before", Server, "UploadPart is about to be sent"},
	S3UploadPartAfter:      {"s3.upload-part.after", Server, "UploadPart is answered"},
	S3CopyPartBefore:       {"s3.copy-part.before", Server, "CopyPart is about to be sent"},
	S3CopyPartAfter:        {"s3.copy-part.after", Server, "CopyPart is answered"},
	S3CompleteUploadBefore: {"s3.complete-upload.before", Server, "CompleteUpload is about to be sent"},
	S3CompleteUploadAfter:  {"s3.complete-upload.after", Server, "CompleteUpload is answered"},
	S3AbortUploadBefore:    {"s3.abort-upload.before", Server, "AbortUpload is about to be sent"},
	S3AbortUploadAfter:     {"s3.abort-upload.after", Server, "AbortUpload is answered"},
	S3ListUploadsBefore:    {"s3.list-uploads.before", Server, "ListUploads is about to be sent"},
	S3ListUploadsAfter:     {"s3.list-uploads.after", Server, "ListUploads is answered"},
	StartIdentity:          {"start.identity", ServerStart, "the identity is about to be written"},
	StartRows:              {"start.rows", ServerStart, "the rows are open, the log is not"},
	StartServing:           {"start.serving", ServerStart, "the group is open, nobody is answered yet"},
	CacheWriteBefore:       {"cache.write.before", Mount, "write(2): the cache file is about to be written"},
	CacheWriteAfter:        {"cache.write.after", Mount, "write(2): bytes are in the cache file, the sidecar does not name them"},
	CacheNoted:             {"cache.noted", Mount, "write(2): the sidecar names the bytes, the kernel not answered"},
	SidecarReplaced:        {"sidecar.replaced", Mount, "a sidecar that ran full has a successor, not renamed"},
	MountStageAfter:        {"mount.stage.after", Mount, "the owners have staged bytes, the cache does not know"},
	MountFlushBefore:       {"mount.flush.before", Mount, "close or fsync: about to be committed"},
	MountFlushAfter:        {"mount.flush.after", Mount, "close or fsync: committed, the sidecar still names the bytes"},
	MountFlushNoted:        {"mount.flush.noted", Mount, "close or fsync: the sidecar is free, the kernel not answered"},
	MountAppendAfter:       {"mount.append.after", Mount, "O_APPEND: committed, the cache file without the bytes"},
	MountNamed:             {"mount.named", Mount, "a new name is committed, the kernel not answered"},
	MountRecoverBefore:     {"mount.recover.before", MountStart, "writes of an earlier process are found, not committed"},
	MountRecoverAfter:      {"mount.recover.after", MountStart, "writes of an earlier process are committed, their files still there"},
}
