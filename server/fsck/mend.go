package fsck

import (
	"context"
	"errors"
	"slices"

	"github.com/objcache/objcache"
)

// Outcome is what a check found and what became of it.
type Outcome struct {
	Found   []Finding // by the first check
	Repairs []Repair  // that were carried out, or would be
	Left    []Finding // by the last check: without a repair those of the first
	Unsure  int       // suspicions that kept changing until the last look
}

// Clean reports whether nothing is left that somebody has to know.
func (o Outcome) Clean() bool {
	return !slices.ContainsFunc(o.Left, func(f Finding) bool { return f.Severity != Note })
}

// mendRounds is how often Mend checks and repairs at most.
const mendRounds = 32

// Mend checks, carries repairs out and checks again, until there is nothing left that a repair could do or nothing that it did had an effect. carry nil: the
// repairs are only planned. A repair that is refused because rows have changed meanwhile (Conflict) is planned anew.
func Mend(ctx context.Context, check func(context.Context) (Report, int, error), carry func(context.Context, Repair) error, o Options) (Outcome, error) {
	var out Outcome
	for round := range mendRounds {
		r, unsure, err := check(ctx)
		if err != nil {
			return out, err
		}
		if round == 0 {
			out.Found = r.Findings
		}
		out.Left, out.Unsure = r.Findings, unsure
		plan := r.Plan(r.Findings, o)
		if carry == nil {
			out.Repairs = plan
			return out, nil
		}
		if len(plan) == 0 {
			break
		}
		for _, x := range plan {
			switch err := carry(ctx, x); {
			case err == nil:
				out.Repairs = append(out.Repairs, x)
			case !errors.Is(err, objcache.Conflict):
				return out, err
			}
		}
	}
	return out, nil
}
