package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The trees that are written through the mount, below the Go source tree.
const (
	copied  = "crypto"
	tarred  = "net"
	cloned  = "encoding"
	late    = "go"
	rowsSQL = 20_000
)

func (d *demo) out(name string) string { return filepath.Join(d.mnt(), "written", name) }

func (d *demo) copyTree(ctx context.Context, s *step) error {
	if err := os.MkdirAll(filepath.Join(d.mnt(), "written"), 0o755); err != nil {
		return err
	}
	return d.copy(ctx, s, copied, d.out("cp"), "written/cp")
}

// copyLate leaves files that are committed in the cluster and not in the bucket when the servers are killed.
func (d *demo) copyLate(ctx context.Context, s *step) error {
	return d.copy(ctx, s, late, filepath.Join(d.mnt(), "late"), "late")
}

// copy copies a tree with cp. What the mount must hold then is what the source has.
func (d *demo) copy(ctx context.Context, s *step, tree, to, name string) error {
	want := d.seeded.below(tree)
	s.ofFiles.Store(int64(len(want)))
	if err := d.verbose(s, exec.CommandContext(ctx, "cp", "-rv", filepath.Join(d.source, tree), to)); err != nil {
		return err
	}
	d.record(s, name, want)
	return nil
}

// verbose runs a tool that prints a line for each file or directory.
func (d *demo) verbose(s *step, cmd *exec.Cmd) error {
	cmd.Stdout = &lineCounter{s}
	_, err := d.command(cmd)
	return err
}

// record says what a step wrote, instead of the lines a tool printed.
func (d *demo) record(s *step, name string, tree manifest) {
	d.written.add(name, tree)
	s.files.Store(int64(len(tree)))
	s.bytes.Store(tree.bytes())
}

func (m manifest) bytes() (n int64) {
	for _, v := range m {
		n += v.size
	}
	return n
}

func (d *demo) untar(ctx context.Context, s *step) error {
	want := d.seeded.below(tarred)
	s.ofFiles.Store(int64(len(want)))
	archive := filepath.Join(d.scratch, "tree.tar")
	if _, err := d.output(ctx, "tar", "cf", archive, "-C", filepath.Join(d.source, tarred), "."); err != nil {
		return err
	}
	if err := os.Mkdir(d.out("tar"), 0o755); err != nil {
		return err
	}
	if err := d.verbose(s, exec.CommandContext(ctx, "tar", "xvf", archive, "-C", d.out("tar"))); err != nil {
		return err
	}
	d.record(s, "written/tar", want)
	return nil
}

// clone makes a repository on the local disk and clones it into the mount.
func (d *demo) clone(ctx context.Context, s *step) error {
	repo := filepath.Join(d.scratch, "repo")
	for _, c := range [][]string{
		{"cp", "-r", filepath.Join(d.source, cloned), repo},
		{"git", "-C", repo, "init", "-q", "-b", "main"},
		{"git", "-C", repo, "add", "-A"},
		{"git", "-C", repo, "-c", "user.name=demo", "-c", "user.email=demo@example.invalid", "commit", "-q", "-m", "Add a source tree"},
		{"git", "clone", "-q", "--no-local", repo, d.out("git")},
		{"git", "-C", d.out("git"), "fsck", "--full", "--strict"},
	} {
		if _, err := d.output(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	dirty, err := d.output(ctx, "git", "-C", d.out("git"), "status", "--porcelain")
	if err == nil && len(dirty) > 0 {
		err = fmt.Errorf("git status is not clean: %s", dirty)
	}
	if err == nil {
		s.files.Store(int64(len(d.seeded.below(cloned))))
		s.bytes.Store(d.seeded.below(cloned).bytes())
	}
	return err
}

// sqlite fills a database in the mount and one on the local disk with the same statements and compares their dumps.
func (d *demo) sqlite(ctx context.Context, s *step) error {
	if err := os.Mkdir(d.out("sqlite"), 0o755); err != nil {
		return err
	}
	inMount, local := filepath.Join(d.out("sqlite"), "demo.db"), filepath.Join(d.scratch, "demo.db")
	var dumps [2]string
	for i, db := range []string{inMount, local} {
		cmd := exec.CommandContext(ctx, "sqlite3", "-bail", db)
		cmd.Stdin = strings.NewReader(statements())
		got, err := d.command(cmd)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(strings.TrimSpace(string(got)), "ok") {
			return fmt.Errorf("integrity check of %s: %s", db, got)
		}
		dump, err := d.output(ctx, "sqlite3", db, ".dump")
		if err != nil {
			return err
		}
		dumps[i] = string(dump)
	}
	if dumps[0] != dumps[1] {
		return fmt.Errorf("the database in the mount (%d bytes as SQL) differs from the local one (%d)", len(dumps[0]), len(dumps[1]))
	}
	v, err := hashFile(inMount)
	s.did(1, v.size)
	return err
}

// statements fill a table in ten transactions, change it and check it.
func statements() string {
	var b strings.Builder
	b.WriteString("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL);\nCREATE INDEX by_word ON words (word);\n")
	for i := range rowsSQL {
		if i%(rowsSQL/10) == 0 {
			b.WriteString("BEGIN;\n")
		}
		fmt.Fprintf(&b, "INSERT INTO words VALUES (%d, 'word %x');\n", i, i*2654435761)
		if i%(rowsSQL/10) == rowsSQL/10-1 {
			b.WriteString("COMMIT;\n")
		}
	}
	b.WriteString("UPDATE words SET word = word || '!' WHERE id % 7 = 0;\nDELETE FROM words WHERE id % 11 = 0;\nPRAGMA integrity_check;\n")
	return b.String()
}
