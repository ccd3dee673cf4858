package external

// Op names one kind of request, as metrics, fakes and fault injection show it.
type Op string

// The operations of a Store.
const (
	OpList           Op = "List"
	OpHead           Op = "Head"
	OpGet            Op = "Get"
	OpPut            Op = "Put"
	OpCopy           Op = "Copy"
	OpDelete         Op = "Delete"
	OpCreateUpload   Op = "CreateUpload"
	OpUploadPart     Op = "UploadPart"
	OpCopyPart       Op = "CopyPart"
	OpCompleteUpload Op = "CompleteUpload"
	OpAbortUpload    Op = "AbortUpload"
	OpListUploads    Op = "ListUploads"
)

// Ops lists every operation.
func Ops() []Op {
	return []Op{OpList, OpHead, OpGet, OpPut, OpCopy, OpDelete, OpCreateUpload, OpUploadPart, OpCopyPart, OpCompleteUpload,
		OpAbortUpload, OpListUploads}
}

// Mutates reports whether the operation may change what the bucket holds.
func (o Op) Mutates() bool {
	switch o {
	case OpList, OpHead, OpGet, OpListUploads:
		return false
	default:
		return true
	}
}
