package server

import (
	"bytes"
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/group"
)

// Bounds of what a check asks of a server that works.
const (
	rowsPage    = 256 << 10        // bytes
	rowsAtOnce  = 2                // checks; each keeps a snapshot of the rows
	rowsLongest = 10 * time.Minute // for which a snapshot is kept
)

// Rows streams all rows as of one moment. They are read page by page, as fast as they are taken.
func (a *admin) Rows(r *rpc.RowsRequest, to rpc.Admin_RowsServer) error {
	if n := a.s.checks.Add(1); n > rowsAtOnce {
		a.s.checks.Add(-1)
		return objcache.Errorf(objcache.Busy, "%d checks are under way", rowsAtOnce)
	}
	defer a.s.checks.Add(-1)
	ctx := to.Context()
	if r.GetVerify() {
		limit := rate.NewLimiter(rate.Limit(a.s.cfg.ScrubRate), chunk.BlockSize)
		n, err := a.s.group.Scrub(ctx, limit.WaitN)
		a.s.scrubbed.Add(uint64(n))
		if err != nil {
			return err
		}
	}
	if err := a.s.group.Read(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rowsLongest)
	defer cancel()
	if err := a.sendRows(ctx, to); err != nil {
		return err
	}
	return a.sendDisk(to)
}

func (a *admin) sendRows(ctx context.Context, to rpc.Admin_RowsServer) (err error) {
	snap := a.s.group.DB().NewSnapshot()
	defer func() {
		if cerr := snap.Close(); err == nil {
			err = cerr
		}
	}()
	page, n := &rpc.RowsPage{}, 0
	err = fsck.Each(snap, func(k, v []byte) error {
		page.Rows = append(page.Rows, &rpc.RepairRow{Key: bytes.Clone(k), After: append([]byte{}, v...)})
		if n += len(k) + len(v); n < rowsPage {
			return nil
		}
		full := page
		page, n = &rpc.RowsPage{}, 0
		if err := ctx.Err(); err != nil {
			return objcache.Errorf(objcache.Unavailable, "the rows were not taken within %v: %w", rowsLongest, err)
		}
		return to.Send(full)
	})
	if err != nil {
		return err
	}
	return to.Send(page)
}

// sendDisk tells what is known beside the rows.
func (a *admin) sendDisk(to rpc.Admin_RowsServer) error {
	page := &rpc.RowsPage{}
	damaged, err := a.s.group.Damaged()
	if err != nil {
		return err
	}
	for _, d := range damaged {
		page.Rotten = append(page.Rotten, &rpc.RottenExtent{Id: d.Extent, Error: d.Err.Error()})
	}
	for _, s := range a.s.group.StaleStaged() {
		page.Staged = append(page.Staged, &rpc.StagedBy{Client: uint64(s.Client), Ino: uint64(s.Chunk.Ino), Chunk: s.Chunk.Index, Bytes: s.Bytes})
	}
	return to.Send(page)
}

// Repair carries out one repair that fsck has planned. Errors travel in the reply: Conflict when rows are not as they were.
func (a *admin) Repair(ctx context.Context, r *rpc.RepairRequest) (*rpc.RepairReply, error) {
	return &rpc.RepairReply{Failure: rpc.FailureOf(a.repair(ctx, r))}, nil
}

func (a *admin) repair(ctx context.Context, r *rpc.RepairRequest) error {
	if c := r.GetExpireStaged(); c != 0 {
		a.s.group.FreeStale(objcache.ClientID(c))
		return nil
	}
	if d := r.GetDecide(); d != nil {
		if d.GetCommit() || objcache.GroupID(d.GetGroup()) != a.s.group.ID() {
			return objcache.Errorf(objcache.Invalid, "a repair only aborts, and what this group has promised")
		}
		reply, err := a.s.group.Decide(ctx, d)
		if err != nil {
			return err
		}
		return reply.GetFailure().Err()
	}
	for _, s := range r.GetSteps() {
		if s.GetRepairRows() == nil {
			return objcache.Errorf(objcache.Invalid, "step %T is no repair", s.GetStep())
		}
	}
	_, err := a.s.group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: time.Now().UnixNano()}, Steps: r.GetSteps()})
	if err == nil {
		a.s.logger.Warn("rows were repaired", "steps", len(r.GetSteps()))
	}
	return err
}
