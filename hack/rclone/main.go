// Command rclone is rclone with the backends and commands that the demo needs: an S3 client that is not ours, without the
// other clouds' dependencies. It is a module of its own so that they never reach the product's.
package main

import (
	_ "github.com/rclone/rclone/backend/local"
	_ "github.com/rclone/rclone/backend/s3"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/check"
	_ "github.com/rclone/rclone/cmd/copy"
	_ "github.com/rclone/rclone/cmd/size"
)

func main() { cmd.Main() }
