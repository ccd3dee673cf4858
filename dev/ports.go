package dev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that are handed out. Linux takes those of outgoing connections from 32768 on, so that a server that is down for a moment finds its own again.
const (
	lowestPort  = 10000
	highestPort = 32767
)

// FreeAddresses returns n addresses of 127.0.0.1 that nobody listens on now.
func FreeAddresses(n int) ([]string, error) { return freeAddresses("127.0.0.1", n) }

// FreeTestAddresses is FreeAddresses at some other address of the loopback network: a server that is down for a moment does not lose its port to a test
// that runs beside it.
func FreeTestAddresses(n int) ([]string, error) {
	return freeAddresses(fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)), n)
}

// freeAddresses holds them all until the last is found, so they differ.
func freeAddresses(host string, n int) (addrs []string, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	var last error
	for range 100 + 10*n {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort+1))))
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
