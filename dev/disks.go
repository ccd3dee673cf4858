package dev

import (
	"path/filepath"

	"github.com/objcache/objcache"
)

// Disks says where what the servers hold can be read.
type Disks struct {
	Running []string // addresses, when all servers run
	States  []string // state directories, when none does
}

// Disks looks which servers run. Invalid when some do and others do not: neither their disks nor they can tell everything.
func (c *Cluster) Disks() (Disks, error) {
	var all, running Disks
	stopped := ""
	for _, s := range c.spec.Servers {
		m := serverMember{c, s}
		all.States = append(all.States, filepath.Join(m.dir(), "state"))
		if read(m.dir()).running() {
			running.Running = append(running.Running, s.Address)
		} else {
			stopped = s.Name
		}
	}
	switch len(running.Running) {
	case 0:
		return all, nil
	case len(c.spec.Servers):
		return running, nil
	}
	return Disks{}, objcache.Errorf(objcache.Invalid, "%s does not run, others do: start it (objcache dev start %s), or stop all servers", stopped, stopped)
}
