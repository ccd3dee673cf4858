package dev

import (
	"errors"
	"fmt"
	"net"
)

// freeAddresses returns n loopback addresses that nobody listens on now. They are all held until the last is found, so they differ.
func freeAddresses(n int) (addrs []string, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
