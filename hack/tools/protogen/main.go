// Command protogen turns the repository's .proto files into Go. It compiles them itself and hands the
// result to protoc-gen-go and protoc-gen-go-grpc, so that no protoc is needed and the generated code is
// the same bytes on every machine. It does not know which .proto files there are: the caller names them.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are run in this order; each is a program of that name in the -plugins directory.
var plugins = []struct{ name, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
}

func main() {
	root := flag.String("root", ".", "directory that .proto paths and their imports are relative to")
	out := flag.String("out", "", "directory the generated files are written below (default: root)")
	bin := flag.String("plugins", "", "directory of the protoc-gen-* programs")
	flag.Parse()
	if *out == "" {
		*out = *root
	}
	if err := run(context.Background(), *root, *out, *bin, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// run generates code for the named .proto files, paths relative to root with slashes.
func run(ctx context.Context, root, out, bin string, names []string) error {
	if len(names) == 0 {
		return errors.New("no .proto files named")
	}
	files, err := compile(ctx, root, names)
	if err != nil {
		return err
	}
	for _, p := range plugins {
		req := &pluginpb.CodeGeneratorRequest{
			FileToGenerate: names,
			Parameter:      proto.String(p.parameter),
			ProtoFile:      files,
		}
		resp, err := runPlugin(ctx, filepath.Join(bin, p.name), req)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := write(out, resp); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// compile parses and links the files and returns them behind everything they import.
func compile(ctx context.Context, root string, names []string) ([]*descriptorpb.FileDescriptorProto, error) {
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments become doc comments
	}
	linked, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	o := ordered{seen: map[string]bool{}}
	for _, f := range linked {
		o.add(f)
	}
	return o.files, nil
}

// ordered lists files so that each comes behind its imports, as plugins expect.
type ordered struct {
	seen  map[string]bool
	files []*descriptorpb.FileDescriptorProto
}

func (o *ordered) add(f protoreflect.FileDescriptor) {
	if o.seen[f.Path()] {
		return
	}
	o.seen[f.Path()] = true
	imports := f.Imports()
	for i := range imports.Len() {
		o.add(resolve(f, imports.Get(i)))
	}
	o.files = append(o.files, protoutil.ProtoFromFileDescriptor(f))
}

// resolve finds the compiled file behind an import, which the linker knows by path.
func resolve(f protoreflect.FileDescriptor, imp protoreflect.FileImport) protoreflect.FileDescriptor {
	if l, ok := f.(linker.File); ok {
		if dep := l.FindImportByPath(imp.Path()); dep != nil {
			return dep
		}
	}
	return imp.FileDescriptor
}

func runPlugin(ctx context.Context, path string, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	resp := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(raw, resp); err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	if resp.Error != nil {
		return nil, errors.New(resp.GetError())
	}
	return resp, nil
}

// write puts the generated files below dir and prints each name.
func write(dir string, resp *pluginpb.CodeGeneratorResponse) error {
	for _, f := range resp.File {
		if f.GetInsertionPoint() != "" {
			return fmt.Errorf("%s: insertion points are not supported", f.GetName())
		}
		if !filepath.IsLocal(f.GetName()) || !strings.HasSuffix(f.GetName(), ".go") {
			return fmt.Errorf("refusing to write %q", f.GetName())
		}
		path := filepath.Join(dir, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
		fmt.Println(f.GetName())
	}
	return nil
}
