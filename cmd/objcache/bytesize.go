package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag for a number of bytes: 1048576, 1MiB or 1M.
type byteSize int64

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}}

// Set parses the flag.
func (b *byteSize) Set(s string) error {
	number, shift := strings.TrimSuffix(strings.TrimSuffix(s, "B"), "i"), uint(0)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, shift = n, u.shift
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is no number of bytes like 1048576, 512MiB or 10GiB", s)
	}
	*b = byteSize(n << shift)
	return nil
}

// String is the number with the largest unit that divides it.
func (b *byteSize) String() string {
	n := int64(*b)
	for i := len(byteUnits) - 1; i >= 0; i-- {
		if u := byteUnits[i]; n != 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d%siB", n>>u.shift, u.suffix)
		}
	}
	return strconv.FormatInt(n, 10)
}

// Type is the word for the value in the help.
func (b *byteSize) Type() string { return "bytes" }
