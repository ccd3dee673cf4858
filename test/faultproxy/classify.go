package faultproxy

import (
	"net/http"
	"strings"

	"github.com/objcache/objcache/server/external"
)

// OpOther is whatever external.Store has no name for: bucket operations, health checks.
const OpOther external.Op = "Other"

// Classify names the operation of a path-style S3 request and its key (for listings the prefix).
func Classify(r *http.Request) (external.Op, string) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	if key == "" {
		switch {
		case r.Method == http.MethodGet && q.Has("uploads"):
			return external.OpListUploads, q.Get("prefix")
		case r.Method == http.MethodGet && q.Has("list-type"):
			return external.OpList, q.Get("prefix")
		}
		return OpOther, ""
	}
	return ofKey(r, q.Has("uploadId"), q.Has("uploads")), key
}

func ofKey(r *http.Request, inUpload, uploads bool) external.Op {
	copies := r.Header.Get("X-Amz-Copy-Source") != ""
	switch {
	case r.Method == http.MethodGet && !inUpload:
		return external.OpGet
	case r.Method == http.MethodHead:
		return external.OpHead
	case r.Method == http.MethodPut && inUpload && copies:
		return external.OpCopyPart
	case r.Method == http.MethodPut && inUpload:
		return external.OpUploadPart
	case r.Method == http.MethodPut && copies:
		return external.OpCopy
	case r.Method == http.MethodPut:
		return external.OpPut
	case r.Method == http.MethodPost && uploads:
		return external.OpCreateUpload
	case r.Method == http.MethodPost && inUpload:
		return external.OpCompleteUpload
	case r.Method == http.MethodDelete && inUpload:
		return external.OpAbortUpload
	case r.Method == http.MethodDelete:
		return external.OpDelete
	}
	return OpOther
}
