package main

import (
	"fmt"
	"slices"
	"time"
)

// numbers are the measurements of one thing.
type numbers []float64

// rate adds bytes per time, in MiB/s.
func (n *numbers) rate(bytes int64, d time.Duration) {
	*n = append(*n, float64(bytes)/(1<<20)/d.Seconds())
}

func (n numbers) median() float64 {
	if len(n) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(n))
	if m := len(s) / 2; len(s)%2 == 0 {
		return (s[m-1] + s[m]) / 2
	} else {
		return s[m]
	}
}

func (n numbers) String() string {
	switch len(n) {
	case 0:
		return "-"
	case 1:
		return short(n[0])
	}
	return fmt.Sprintf("%s (%s..%s)", short(n.median()), short(slices.Min(n)), short(slices.Max(n)))
}

// short shows three digits, whole numbers whole.
func short(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
