package external

import (
	"context"
	"io"

	"github.com/objcache/objcache/failpoint"
)

// points are the failpoints before and after each attempt of a request.
var points = map[Op][2]failpoint.Point{
	OpList:           {failpoint.S3ListBefore, failpoint.S3ListAfter},
	OpHead:           {failpoint.S3HeadBefore, failpoint.S3HeadAfter},
	OpGet:            {failpoint.S3GetBefore, failpoint.S3GetAfter},
	OpPut:            {failpoint.S3PutBefore, failpoint.S3PutAfter},
	OpCopy:           {failpoint.S3CopyBefore, failpoint.S3CopyAfter},
	OpDelete:         {failpoint.S3DeleteBefore, failpoint.S3DeleteAfter},
	OpCreateUpload:   {failpoint.S3CreateUploadBefore, failpoint.S3CreateUploadAfter},
	OpUploadPart:     {failpoint.S3UploadPartBefore, failpoint.S3UploadPartAfter},
	OpCopyPart:       {failpoint.S3CopyPartBefore, failpoint.S3CopyPartAfter},
	OpCompleteUpload: {failpoint.S3CompleteUploadBefore, failpoint.S3CompleteUploadAfter},
	OpAbortUpload:    {failpoint.S3AbortUploadBefore, failpoint.S3AbortUploadAfter},
	OpListUploads:    {failpoint.S3ListUploadsBefore, failpoint.S3ListUploadsAfter},
}

// Failpoints puts the failpoints around every request to s; without the tag it is s. An error before is a request that never left, one after
// is a lost reply.
func Failpoints(s Store) Store {
	if !failpoint.Enabled {
		return s
	}
	p := &pointed{s: s}
	p.around = around{Store: s, run: p.do}
	return p
}

type pointed struct {
	around
	s Store
}

func (p *pointed) do(ctx context.Context, op Op, request func(context.Context) error) error {
	at := points[op]
	if err := failpoint.Fail(at[0]); err != nil {
		return err
	}
	err := request(ctx)
	if lost := failpoint.Fail(at[1]); lost != nil {
		return lost
	}
	return err
}

func (p *pointed) Get(ctx context.Context, key string, off, length int64, ifMatch string) (body io.ReadCloser, obj Object, err error) {
	err = p.do(ctx, OpGet, func(ctx context.Context) error {
		body, obj, err = p.s.Get(ctx, key, off, length, ifMatch)
		return err
	})
	if err != nil && body != nil {
		body.Close()
		body = nil
	}
	return body, obj, err
}
