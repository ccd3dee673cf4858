package dev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports that are handed out. Linux takes those of outgoing connections from 32768 on, so that a server that is down for a moment finds its own again.
const (
	lowestPort  = 10000
	highestPort = 32767
)

// FreeAddresses returns n loopback addresses that nobody listens on now. They are all held until the last is found, so they differ.
func FreeAddresses(n int) (addrs []string, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	var last error
	for range 100 + 10*n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort+1)))
		if err != nil {
			last = err
			continue
		}
		held = append(held, l)
		if addrs = append(addrs, l.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports: %w", n, last)
}
