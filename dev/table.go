package dev

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the status for people.
func (s Status) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "VIEW\t%s\n\n", orDash(s.View))
	fmt.Fprintln(t, "SERVER\tSTATE\tPID\tADDRESS\tVIEW\tINODES\tCHUNKS\tCACHED\tDIRTY\tDIRTY FILES\tWRITES\tUPLOADS")
	for _, v := range s.Servers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\t%d\t%d\n", v.Name, word(v.State, v.Error), pid(v.PID), v.Address, orDash(v.ViewVersion),
			v.Inodes, v.Chunks, size(v.CachedBytes), size(v.DirtyBytes), v.DirtyFiles, v.OutstandingWrites, v.Uploads)
	}
	fmt.Fprintln(t, "\nMOUNT\tSTATE\tPID\tMOUNTPOINT\tCONSISTENCY\tPASSTHROUGH\tOPEN FILES\tCACHED\tDIRTY")
	for _, m := range s.Mounts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", m.Name, word(m.State, m.Error), pid(m.PID), m.Mountpoint, m.Consistency, orDash(m.Passthrough),
			m.OpenFiles, size(uint64(m.CachedBytes)), size(uint64(m.DirtyBytes)))
	}
	fmt.Fprintln(t, "\nBUCKET\tDIRECTORY\tENDPOINT\tS3 SERVER\tACCESS KEY\tSECRET KEY")
	for _, b := range s.S3.Buckets {
		endpoint := b.Endpoint
		if endpoint == "" {
			endpoint = s.S3.Endpoint
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", b.BucketName, b.DirName, orDash(endpoint), orDash(s.S3.State), orDash(b.AccessKey), orDash(b.SecretKey))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.printLosses(w); err != nil {
		return err
	}
	return s.printErrors(w)
}

func (s Status) printLosses(w io.Writer) error {
	n := uint64(0)
	for _, v := range s.Servers {
		n += v.LostFiles
	}
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nThe latest content of %d files was lost with a disk: `objcache dev losses` names them\n", n)
	return err
}

func (s Status) printErrors(w io.Writer) error {
	for _, v := range s.Servers {
		if v.Error != "" {
			if _, err := fmt.Fprintf(w, "\n%s does not answer: %s\n", v.Name, v.Error); err != nil {
				return err
			}
		}
	}
	for _, m := range s.Mounts {
		if m.Error != "" {
			if _, err := fmt.Fprintf(w, "\n%s does not answer: %s\n", m.Name, m.Error); err != nil {
				return err
			}
		}
	}
	return nil
}

// word is a state, with a mark when the process runs and does not answer.
func word(state, err string) string {
	if err != "" {
		return state + " (!)"
	}
	return state
}

func pid(p int) string {
	if p == 0 {
		return "-"
	}
	return fmt.Sprint(p)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
