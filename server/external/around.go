package external

import "context"

// around is a Store whose requests, all but Get, run through one function: what the decorators have in common.
// Get is each decorator's own, because its request ends with the body.
type around struct {
	Store
	run func(ctx context.Context, op Op, request func(context.Context) error) error
}

// ask runs a request with one result.
func ask[T any](ctx context.Context, a around, op Op, request func(context.Context) (T, error)) (v T, err error) {
	err = a.run(ctx, op, func(ctx context.Context) (err error) {
		v, err = request(ctx)
		return err
	})
	return v, err
}

func (a around) List(ctx context.Context, r ListRequest) (Page, error) {
	return ask(ctx, a, OpList, func(ctx context.Context) (Page, error) { return a.Store.List(ctx, r) })
}

func (a around) Head(ctx context.Context, key string) (Object, error) {
	return ask(ctx, a, OpHead, func(ctx context.Context) (Object, error) { return a.Store.Head(ctx, key) })
}

func (a around) Put(ctx context.Context, key string, body Body, meta map[string]string, c Condition) (string, error) {
	return ask(ctx, a, OpPut, func(ctx context.Context) (string, error) { return a.Store.Put(ctx, key, body, meta, c) })
}

func (a around) Copy(ctx context.Context, dst, src, srcETag string, meta map[string]string, c Condition) (string, error) {
	return ask(ctx, a, OpCopy, func(ctx context.Context) (string, error) { return a.Store.Copy(ctx, dst, src, srcETag, meta, c) })
}

func (a around) Delete(ctx context.Context, key string) error {
	return a.run(ctx, OpDelete, func(ctx context.Context) error { return a.Store.Delete(ctx, key) })
}

func (a around) CreateUpload(ctx context.Context, key string, meta map[string]string) (string, error) {
	return ask(ctx, a, OpCreateUpload, func(ctx context.Context) (string, error) { return a.Store.CreateUpload(ctx, key, meta) })
}

func (a around) UploadPart(ctx context.Context, key, id string, number int32, body Body) (string, error) {
	return ask(ctx, a, OpUploadPart, func(ctx context.Context) (string, error) { return a.Store.UploadPart(ctx, key, id, number, body) })
}

func (a around) CopyPart(ctx context.Context, key, id string, number int32, src string, off, length int64, srcETag string) (string, error) {
	return ask(ctx, a, OpCopyPart, func(ctx context.Context) (string, error) {
		return a.Store.CopyPart(ctx, key, id, number, src, off, length, srcETag)
	})
}

func (a around) CompleteUpload(ctx context.Context, key, id string, parts []Part, c Condition) (string, error) {
	return ask(ctx, a, OpCompleteUpload, func(ctx context.Context) (string, error) {
		return a.Store.CompleteUpload(ctx, key, id, parts, c)
	})
}

func (a around) AbortUpload(ctx context.Context, key, id string) error {
	return a.run(ctx, OpAbortUpload, func(ctx context.Context) error { return a.Store.AbortUpload(ctx, key, id) })
}

func (a around) ListUploads(ctx context.Context, key string) ([]Upload, error) {
	return ask(ctx, a, OpListUploads, func(ctx context.Context) ([]Upload, error) { return a.Store.ListUploads(ctx, key) })
}
