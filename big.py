import sys,os,time,json,subprocess
M,N,M2,S,OB=sys.argv[1],int(sys.argv[2]),sys.argv[3],sys.argv[4],sys.argv[5]
d=os.listdir(M)[0]
base=os.path.join(M,d)
def load():
    st=json.loads(subprocess.check_output([OB,'dev','status','--state',S,'-o','json']))
    p={s['name']:s['pid'] for s in st['servers']}
    for m in st['mounts']: p[m['name']]=m['pid']
    p['s3']=st['s3'].get('pid',0) or 0
    return {k:v for k,v in p.items() if v}
def cpu(p):
    f=open('/proc/%d/stat'%p).read().rsplit(')',1)[1].split()
    return (int(f[11])/100,int(f[12])/100)
def phase(name,fn,bytes):
    pids=load()
    before={n:cpu(p) for n,p in pids.items()}
    if os.environ.get('PERF')==name:
        pf=subprocess.Popen(['perf','record','-a','-g','-F','999','-o','/tmp/perf/perf.data','--','sleep','60'],stderr=subprocess.DEVNULL); time.sleep(.3)
    a=time.time(); fn(); t=time.time()-a
    if os.environ.get('PERF')==name:
        pf.terminate(); pf.wait()
    s=' '.join('%s %.2f+%.2f'%(n,cpu(p)[0]-before[n][0],cpu(p)[1]-before[n][1]) for n,p in pids.items())
    print('%-14s %.2f s %6.0f MiB/s cpu: %s'%(name,t,bytes/t/2**20,s),flush=True)
size=N<<20
blk=os.urandom(1<<20)
def write(path):
    fd=os.open(path,os.O_CREAT|os.O_WRONLY)
    for i in range(N): os.write(fd,blk)
    os.close(fd)
def writesync(path):
    fd=os.open(path,os.O_CREAT|os.O_WRONLY)
    for i in range(N): os.write(fd,blk)
    os.fsync(fd); os.close(fd)
def read(path):
    fd=os.open(path,os.O_RDONLY)
    b=bytearray(1<<20)
    while os.readv(fd,[b]): pass
    os.close(fd)
def drop(): os.system('sync; echo 3 > /proc/sys/vm/drop_caches')
e='/var/tmp/ext4big'
phase('ext4 write',lambda: writesync(e),size); os.unlink(e)
phase('write',lambda: write(base+'/big'),size)
phase('write2',lambda: write(base+'/big2'),size)
drop()
phase('reread',lambda: read(base+'/big'),size)
phase('warm',lambda: read(base+'/big'),size)
subprocess.check_call([OB,'dev','mount','--state',S,M2],stdout=subprocess.DEVNULL)
phase('second mount',lambda: read(os.path.join(M2,d)+'/big'),size)
phase('flush',lambda: subprocess.check_call([OB,'dev','flush','--state',S],stdout=subprocess.DEVNULL),2*size)
subprocess.check_call([OB,'dev','umount','--state',S,M2],stdout=subprocess.DEVNULL)
